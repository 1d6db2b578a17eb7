from pathlib import Path

import spanlm
from tests.cli.conftest import Cli


def test_a_prompt_is_cut_as_the_training_text_was(cli: Cli, sentence_run: Path, tiny_run: Path) -> None:
    """Into sentences, each of which that model reads alone: only the last, open one tells how it goes on."""
    options = ["--length", "30", "--seed", "2"]
    alone = cli("generate", sentence_run, "--prompt", "He said", *options).done
    both = cli("generate", sentence_run, "--prompt", "The cat sat . Zebra ran ! He said", *options).done
    assert both == "The cat sat . Zebra ran ! " + alone
    start = cli("generate", sentence_run, "--prompt", "The cat sat .\n", *options).done
    assert start == "The cat sat .\n" + cli("generate", sentence_run, *options).done
    found = spanlm.load(tiny_run).texts.prompt("the cat\n\nsat on")
    assert found == ["the", "cat", "<eos>", "<eos>", "sat", "on"]


def test_a_prompt_may_end_in_white_space_and_within_a_character(cli: Cli, tiny_run: Path, bytes_run: Path) -> None:
    spaced, plain = (cli("generate", tiny_run, "--prompt", prompt, "--length", "9").done for prompt in ("the ", "the"))
    assert spaced == plain
    whole = cli("generate", bytes_run, "--prompt", "caf\udcc3", "--length", "9", "--seed", "3").done
    assert whole.startswith("caf") and "\udcc3" not in whole


def test_words_of_a_prompt_that_are_read_as_unknown_are_named(cli: Cli, tiny_run: Path) -> None:
    result = cli("generate", tiny_run, "--prompt", "the zebra\nthe zebra", "--length", "9")
    assert result.status == 0 and result.out.startswith("the zebra\nthe zebra ")
    assert "zebra\n" in result.err and result.err.count("zebra") == 1
    assert "zebra" not in cli("generate", tiny_run, "--prompt", "the cat", "--length", "9").err


def test_a_model_that_predicts_no_first_words_ends_with_its_line(cli: Cli, unopened_run: Path) -> None:
    words = spanlm.load(unopened_run).generate("the", length=200, seed=3)
    assert words.index("<eos>") == len(words) - 1 < 199
    assert cli("generate", unopened_run, "--prompt", "the", "--length", "200", "--seed", "3").done == " ".join(
        ["the", *words]
    ).replace(" <eos>", "\n")
    cli("generate", unopened_run, "--prompt", "the cat\n").refused("--prompt=''", "give that word")


def test_samples_stand_under_their_numbers(cli: Cli, tiny_run: Path) -> None:
    one = [cli("generate", tiny_run, "--prompt", "the cat", "--length", 9, "--seed", seed).done for seed in (4, 5)]
    both = cli("generate", tiny_run, "--prompt", "the cat", "--length", 9, "--seed", 4, "--samples", 2).done
    assert both == f"1:\n{one[0]}2:\n{one[1]}"
