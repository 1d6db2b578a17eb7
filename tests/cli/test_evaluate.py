from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import spanlm
from spanlm.data import corpora as sources
from spanlm.data.corpora import PublishedFile
from spanlm.errors import RunError
from spanlm.models.counting import count_parameters
from tests.cli.conftest import Cli

FIELDS = {
    "run",
    "corpus",
    "split",
    "protocol",
    "tokens",
    "nll",
    "nll_per_token",
    "bits_per_token",
    "perplexity",
    "oov_tokens",
    "unk_tokens",
    "oov_share",
    "unk_share",
    "perplexity_without_unk",
    "tokens_per_second",
}


@pytest.mark.parametrize("split", ["train", "valid", "test"])
@pytest.mark.parametrize("state", ["auto", "carry", "document", "line"])
def test_json_is_the_evaluation(cli: Cli, tiny_run: Path, split: str, state: str) -> None:
    result = json.loads(cli("evaluate", tiny_run, "--split", split, "--state", state, "--json").done)
    assert result.keys() >= FIELDS
    expected = spanlm.load(tiny_run).evaluate(split=split, state=state).to_json()  # type: ignore[arg-type]
    for name in FIELDS - {"run", "tokens_per_second"}:
        assert result[name] == pytest.approx(expected[name]), name
    assert result["run"] == str(tiny_run)
    assert result["tokens_per_second"] > 0


@pytest.mark.parametrize(
    "how", [{"state": "carry", "batch_size": 3}, {"state": "carry", "precision": "bf16"}], ids=lambda how: [*how][-1]
)
def test_how_it_is_computed_is_as_asked_for(cli: Cli, tiny_run: Path, how: dict[str, Any]) -> None:
    options = [f"--{name.replace('_', '-')}={value}" for name, value in how.items()]
    model = spanlm.load(tiny_run)
    right, usual = model.evaluate(**how), model.evaluate(state="carry")
    assert right.nll != pytest.approx(usual.nll, rel=1e-7), "else an option that is dropped is not seen"
    result = json.loads(cli("evaluate", tiny_run, *options, "--json").done)
    assert (result["nll"], result["protocol"]) == (pytest.approx(right.nll, rel=1e-9), right.protocol)


def test_the_report_says_every_number_and_how_it_was_counted(cli: Cli, tiny_run: Path) -> None:
    out = cli("evaluate", tiny_run).done
    model = spanlm.load(tiny_run)
    result, count = model.evaluate(), count_parameters(model.model)
    flat = " ".join(out.split())
    for part in (
        f"perplexity {result.perplexity:.2f}",
        f"{result.tokens:,} tokens",
        result.protocol,
        f"{result.nll_per_token:.4f} nats = {result.bits_per_token:.4f} bits",
        f"3 words of the text are not in the vocabulary ({3 / result.tokens:.2%})",
        f"4 targets ({4 / result.tokens:.2%}); perplexity without them {result.perplexity_without_unk:.2f}",
        f"θ_M {count.model:,}",
        f"θ_W+M {count.total:,}",
        "tiny test",
    ):
        assert part in flat, part
    assert "\x1b" not in out


def test_another_corpus_is_read_in_the_models_vocabulary(cli: Cli, tiny_run: Path, tmp_path: Path) -> None:
    (tmp_path / "other.txt").write_text("the lion\n" * 100)
    result = json.loads(cli("evaluate", tiny_run, "--corpus", "other.txt", "--json").done)
    assert (result["tokens"], result["oov_tokens"], result["oov_share"]) == (300, 100, pytest.approx(1 / 3))
    assert (result["corpus"], result["split"]) == ("other.txt", "text")


@pytest.mark.parametrize("verb", [["evaluate"], ["attend", "--by-lag"]])
def test_a_part_of_a_file_that_has_none_is_refused(cli: Cli, tiny_run: Path, tmp_path: Path, verb: list[str]) -> None:
    """The whole file's number would stand under the name of a part."""
    (tmp_path / "other.txt").write_text("the cat sees the dog\n" * 3)
    asked = [verb[0], tiny_run, *verb[1:], "--corpus", "other.txt"]
    cli(*asked, "--split", "valid").refused("--split=valid: other.txt is one file, which is taken whole")
    assert cli(*asked).status == 0


def test_a_folder_needs_only_the_part_that_is_evaluated(cli: Cli, tiny_run: Path, tmp_path: Path) -> None:
    (tmp_path / "part").mkdir()
    (tmp_path / "part" / "test.txt").write_text("the cat\n" * 10)
    assert json.loads(cli("evaluate", tiny_run, "--corpus", "part", "--json").done)["tokens"] == 30
    cli("evaluate", tiny_run, "--corpus", "part", "--split", "valid").refused("no valid.txt")


def test_data_dir_names_where_registered_corpora_are(cli: Cli, tiny_run: Path, tmp_path: Path) -> None:
    cli("evaluate", tiny_run, "--corpus", "ptb", "--data-dir", "mine").refused("mine/ptb")
    (tmp_path / "mine" / "ptb").mkdir(parents=True)
    for split in ("train", "valid", "test"):
        (tmp_path / "mine" / "ptb" / f"{split}.txt").write_text("not the published text\n")
    cli("evaluate", tiny_run, "--corpus", "ptb", "--data-dir", "mine").refused("not the published ptb")


def test_a_corpus_is_fetched_where_that_is_asked_for(cli: Cli, tiny_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing_there(file: PublishedFile, path: Path) -> None:
        raise RunError(f"asked for {path.name}")

    monkeypatch.setattr(sources, "download", nothing_there)
    cli("evaluate", tiny_run, "--corpus", "ptb").refused("--download")
    cli("evaluate", tiny_run, "--corpus", "ptb", "--download").refused("asked for test.txt", status=1)


def test_the_way_out_is_an_option_of_this_verb(cli: Cli, tiny_run: Path) -> None:
    """A library's message serves every verb: it says which option is whose, and no other."""
    error = cli("evaluate", tiny_run, "--corpus", "ptb").err
    assert "`spanlm train --data.download true` (or evaluate or attend with --download)" in error
    assert "--data.dir (--data-dir)" in error
    offered = set(re.findall(r"--[\w.-]+", error))
    own = {option for option in offered if not option.startswith("--data.")}
    assert own == {"--download", "--data-dir"}
    for verb, options in {"evaluate": own, "attend": own, "train": offered - own}.items():
        known = set(re.findall(r"--[\w.-]+", cli(verb, "--help", "all").done))
        assert options <= known, (verb, options - known)


def test_a_bad_device_is_named_as_it_was_given(cli: Cli, tiny_run: Path) -> None:
    cli("evaluate", tiny_run, "--device", "nonsense").refused("--device=nonsense")
