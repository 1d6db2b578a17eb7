from __future__ import annotations

import os
import re
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file

import spanlm
from spanlm.config import RunConfig
from spanlm.models.memories import NGramConfig, NoMemoryConfig
from spanlm.presets import PRESETS
from spanlm.training.config import FinetuneConfig
from tests.cli.conftest import Cli
from tests.conftest import tiny_lines

SMALL = (
    "--model.embedding_size=6",
    "--model.encoder.hidden_size=12",
    "--model.output_dropout=0",
    "--training.batching.batch_size=4",
    "--training.batching.length=7",
    "--training.epochs=2",
)


@pytest.fixture
def dry(monkeypatch: pytest.MonkeyPatch) -> list[tuple[RunConfig, str, bool]]:
    """(configuration, folder, tour) of every run that would have been trained."""
    runs: list[Any] = []

    def train_and_tell(config: RunConfig, corpus: object, folder: Path, *, resume: bool) -> None:
        runs.append((config, str(folder), False))

    def tour(*arguments: object) -> None:
        runs[-1] = (*runs[-1][:2], True)

    monkeypatch.setattr("spanlm.cli.train.train_and_report", train_and_tell)
    monkeypatch.setattr("spanlm.cli.train.print_demo_report", tour)
    return runs


# a run from end to end


def test_a_run_tells_its_story_in_plain_lines(cli: Cli, tiny_corpus: Path) -> None:
    out = cli("train", "demo", *SMALL, "--corpus", tiny_corpus, "--out", "run").done
    assert "\x1b" not in out and "\r" not in out
    flat = [" ".join(line.split()) for line in out.splitlines()]
    model = spanlm.load("run")
    count = sum(p.numel() for p in model.model.parameters() if p.requires_grad)
    words = model.model.embedding.weight.numel()
    assert "model LSTM 12, key-value-predict memory, window 5, softmax; embedding 6" in flat
    assert f"parameters θ_M {count - words:,} (without word representations), θ_W+M {count:,}" in flat
    sizes = ", ".join(f"{name} {len(tokens):,}" for name, tokens in model.corpus().splits.items())
    assert f"data tiny: {sizes} tokens; vocabulary {len(model.vocabulary):,}" in flat
    assert "folder run" in flat
    epochs = [line for line in flat if line.startswith("epoch")]
    assert [line.split()[1] for line in epochs] == ["1", "2"]
    assert all(re.search(r"train ppl [\d.]+ valid ppl [\d.]+ .*tok/s", line) for line in epochs)
    best = re.search(r"best epoch (\d) of 2: valid ppl ([\d.]+)\. Test it once: spanlm evaluate run --split test", out)
    assert best is not None
    assert f"valid ppl {best[2]}" in epochs[int(best[1]) - 1]
    assert epochs[int(best[1]) - 1].endswith("best, saved")
    assert {path.name for path in Path("run").iterdir()} >= {
        "config.yaml",
        "vocabulary.json",
        "model.safetensors",
        "metrics.jsonl",
        "checkpoints",
    }
    assert model.config.model.encoder.hidden_size == 12


def test_progress_is_a_line_now_and_then(cli: Cli, tiny_corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spanlm.cli.render.PLAIN_SECONDS", 0.0)
    out = cli("train", "demo", *SMALL, "--corpus", tiny_corpus, "--out", "run").done
    lines = [line for line in out.splitlines() if line.startswith("epoch 1/2")]
    assert len(lines) > 10
    pattern = r"epoch 1/2  (\d+)/(\d+)  loss [\d.]+  ppl [\d.,]+  [\d,]+ tok/s  lr 0\.002  eta \d:\d\d:\d\d"
    pattern += r", all at most \d:\d\d:\d\d"
    places = [re.fullmatch(pattern, line) for line in lines]
    assert all(places)
    assert [int(place[1]) for place in places if place] == list(range(1, len(lines) + 1))
    assert places[-1][2] == places[-1][1]  # type: ignore[index]


def test_a_folder_that_holds_a_run_is_not_overwritten(cli: Cli, tiny_run: Path, tiny_corpus: Path) -> None:
    before = (tiny_run / "model.safetensors").read_bytes()
    cli("train", "demo", *SMALL, "--corpus", tiny_corpus, "--out", tiny_run).refused(
        "already holds a run", "--resume auto"
    )
    assert (tiny_run / "model.safetensors").read_bytes() == before


def test_going_on(cli: Cli, tiny_corpus: Path) -> None:
    command = ["train", "demo", *SMALL, "--corpus", tiny_corpus, "--data.documents=blank-line"]
    cli(*command, "--out", "run").done  # noqa: B018 (checks)
    out = cli("train", "--no-tour", "--out", "run", "--resume", "auto", "--training.epochs=3").done
    assert "going on from step" in out
    assert [line.split()[1] for line in out.splitlines() if line.startswith("epoch")] == ["3"]
    config = RunConfig.load(Path("run/config.yaml"))
    assert (config.training.epochs, config.data.documents) == (3, "blank-line")
    cli(*command, "--out", "whole", "--training.epochs=3").done  # noqa: B018 (checks)
    # not the bytes of the files: their headers may be in another order
    resumed, uninterrupted = (load_file(Path(run) / "model.safetensors") for run in ("run", "whole"))
    assert resumed.keys() == uninterrupted.keys()
    assert all(torch.equal(resumed[name], uninterrupted[name]) for name in resumed)
    out = cli("train", "--no-tour", "--out", "run", "--resume", "auto").done
    assert "finished before, after 3 epochs; more training.epochs go on" in out and "going on from" not in out
    fewer = cli("train", "--no-tour", "--out", "run", "--resume", "auto", "--training.epochs=2")
    fewer.refused("training.epochs=2: run has had 3 already", "more")
    assert RunConfig.load(Path("run/config.yaml")).training.epochs == 3
    refused = cli("train", "--no-tour", "--out", "run", "--resume", "auto", "--training.optimizer.lr=0.5")
    refused.refused("training.optimizer.lr=0.002, not 0.5")


def test_auto_begins_where_nothing_is(cli: Cli, tiny_corpus: Path) -> None:
    cli("train", "demo", *SMALL, "--corpus", tiny_corpus, "--out", "run", "--resume", "auto").done  # noqa: B018
    assert Path("run/model.safetensors").exists()


# which folder, which configuration


@pytest.mark.usefixtures("dry")
@pytest.mark.parametrize("zero", [["--training.finetune.stages", "0"], ["--training.finetune.stages=0"]], ids=str)
def test_a_preset_without_its_stages_is_without_what_it_says_of_them(zero: list[str], cli: Cli) -> None:
    name = "wang2019/mos-ps-at-ptb"
    preset = PRESETS[name].config
    assert preset.training.finetune.adversarial is not None
    expected = replace(preset, training=replace(preset.training, finetune=FinetuneConfig()))
    assert yaml.safe_load(cli("train", name, *zero, "--print_config").done) == expected.to_tree()
    cli("train", name, *zero, "--training.finetune.epochs", "7").refused("training.finetune.epochs=7")


@pytest.mark.usefixtures("dry")
def test_a_file_without_the_stages_of_a_preset_is_as_the_option(cli: Cli, tmp_path: Path) -> None:
    name, file = "wang2019/mos-ps-at-ptb", tmp_path / "f.yaml"
    file.write_text("training: {finetune: {stages: 0}}\n")
    without = cli("train", name, "--training.finetune.stages=0", "--print_config").done
    assert cli("train", name, "--config", "f.yaml", "--print_config").done == without
    file.write_text("training: {finetune: {stages: 0, epochs: 7}}\n")
    cli("train", name, "--config", "f.yaml", "--print_config").refused("training.finetune.epochs=7")
    file.write_text("training: {finetune: {epochs: 7}}\n")
    finetune = PRESETS[name].config.training.finetune
    assert finetune.stages > 0
    kept = printed(cli, name, "--config", "f.yaml").training.finetune
    assert kept == replace(finetune, epochs=7)


def test_print_config_trains_nothing(cli: Cli, dry: list[Any], tmp_path: Path) -> None:
    assert yaml.safe_load(cli("train", "--print_config").done) == PRESETS["demo"].config.to_tree()
    assert dry == []
    assert list(tmp_path.iterdir()) == []


def test_the_next_free_folder(cli: Cli, dry: list[Any], tiny_corpus: Path, tmp_path: Path) -> None:
    for _ in range(2):
        cli("train", "daniluk2017/kvp-w5", "--corpus", tiny_corpus).done  # noqa: B018 (checks)
        Path(dry[-1][1]).mkdir(parents=True)
    (tmp_path / "my.words.txt").write_text("a\nb\nc\n")
    cli("train", "demo", "--corpus", "my.words.txt").done  # noqa: B018 (checks)
    assert [folder for _, folder, _ in dry] == [
        "runs/daniluk2017-kvp-w5-tiny",
        "runs/daniluk2017-kvp-w5-tiny-2",
        "runs/demo-my",
    ]


def test_the_main_job(cli: Cli, dry: list[Any]) -> None:
    cli("train").done  # noqa: B018 (checks)
    assert dry == [(PRESETS["demo"].config, "runs/demo", True)]


@pytest.mark.parametrize(
    ("words", "tour"),
    [
        (["demo"], False),
        (["--corpus", "tiny"], False),
        (["--config", "c.yaml"], False),
        (["--tour", "demo"], True),
        (["demo", "--tour"], True),
        (["--no-tour", "--out", "x"], False),
        (["--out", "x"], True),
        (["--training.epochs=2"], True),
        (["--data.corpus=tiny"], False),
    ],
    ids=str,
)
def test_who_gets_the_tour(
    cli: Cli, dry: list[Any], tiny_corpus: Path, tmp_path: Path, words: list[str], tour: bool
) -> None:
    (tmp_path / "tiny").symlink_to(tiny_corpus)
    (tmp_path / "c.yaml").write_text("data: {corpus: tiny}\n")
    cli("train", *words).done  # noqa: B018 (checks)
    assert dry[-1][2] == tour


def test_going_on_is_no_tour(cli: Cli, dry: list[Any], tiny_run: Path) -> None:
    cli("train", "--out", tiny_run, "--resume", "auto").done  # noqa: B018 (checks)
    assert dry[-1][2] is False


def printed(cli: Cli, *words: object) -> RunConfig:
    return RunConfig.from_tree(yaml.safe_load(cli("train", *words, "--print_config").done))


def test_preset_then_file_then_options(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("training: {epochs: 7, seed: 8}\nmodel: {memory: {window: 9}}\n")
    preset = PRESETS["daniluk2017/kv-w10"].config
    found = printed(cli, "daniluk2017/kv-w10", "--config", "c.yaml", "--training.seed=9", "--data.corpus=x")
    assert found == replace(
        preset,
        data=replace(preset.data, corpus="x"),
        model=replace(preset.model, memory=replace(preset.model.memory, window=9)),
        training=replace(preset.training, epochs=7, seed=9),
    )
    # without a preset, a file stands on the defaults of the fields, not on the demo
    alone = printed(cli, "--config", "c.yaml")
    assert alone.model.encoder == RunConfig().model.encoder
    assert (alone.training.epochs, alone.training.optimizer.lr) == (7, 0.001)


def test_another_kind_drops_the_old_parts_fields(cli: Cli, tmp_path: Path) -> None:
    for kind in (["--model.memory.kind=ngram"], ["--model.memory.kind", "ngram"]):
        assert printed(cli, "demo", *kind).model.memory == NGramConfig(order=4)
    assert printed(cli, "demo", "--model.memory.kind=ngram", "--model.memory.order=3").model.memory == NGramConfig(
        order=3
    )
    (tmp_path / "c.yaml").write_text("model: {memory: {kind: ngram, order: 5}}\n")
    assert printed(cli, "demo", "--config", "c.yaml").model.memory == NGramConfig(order=5)
    assert printed(cli, "demo", "--config", "c.yaml", "--model.memory.kind=none").model.memory == NoMemoryConfig()
    # the same kind again keeps what the preset says
    kept = printed(cli, "daniluk2017/kv-w15", "--model.memory.kind=key_value").model.memory
    assert kept == PRESETS["daniluk2017/kv-w15"].config.model.memory


def test_null_is_a_value(cli: Cli) -> None:
    found = printed(
        cli, "demo", "--training.patience=null", "--training.optimizer.clip", "null", "--model.encoder.forget_bias=null"
    )
    assert (found.training.patience, found.training.optimizer.clip, found.model.encoder.forget_bias) == (
        None,
        None,
        None,
    )


@pytest.mark.parametrize("name", ["demo", "daniluk2017/lstm", "daniluk2017/kvp-w5", "daniluk2017/4-gram"])
def test_what_is_printed_can_be_read_back(cli: Cli, tmp_path: Path, name: str) -> None:
    options = ["--training.patience=null", "--data.max_size=99", "--data.corpus=x: y", "--training.optimizer.lr=3e-05"]
    text = cli("train", name, *options, "--print_config").done
    (tmp_path / "c.yaml").write_text(text, encoding="utf-8")
    assert cli("train", "--config", "c.yaml", "--print_config").done == text
    assert cli("train", name, "--config", "c.yaml", "--print_config").done == text


def test_short_and_long_names_of_the_corpus(cli: Cli) -> None:
    assert printed(cli, "demo", "--corpus", "x") == printed(cli, "demo", "--data.corpus=x")


def test_a_resumed_run_has_its_own_configuration(cli: Cli, tiny_run: Path) -> None:
    assert printed(cli, "--out", tiny_run, "--resume", "auto") == RunConfig.load(tiny_run / "config.yaml")
    assert printed(cli, "--out", tiny_run).model.encoder.hidden_size == 300


def test_matched_sizes_are_those_of_the_run(cli: Cli, tiny_corpus: Path) -> None:
    rest = [option for option in SMALL if "hidden_size" not in option]
    out = cli("train", "demo", *rest, "--corpus", tiny_corpus, "--out", "run", "--match-parameters", "LSTM9").done
    size = RunConfig.load(Path("run/config.yaml")).model.encoder.hidden_size
    assert out.startswith(f"matched to LSTM9: model.encoder.hidden_size={size}, ")
    assert size % 3 == 0 and size != 12


# the tour


@pytest.fixture
def prose(tmp_path: Path) -> Path:
    """A tiny text without blank lines."""
    path = tmp_path / "prose.txt"
    path.write_text("\n".join(line for line in tiny_lines(120, 3) if line) + "\n", encoding="utf-8")
    return path


def test_the_tour(cli: Cli, prose: Path) -> None:
    out = cli("train", "demo", *SMALL, "--corpus", prose, "--out", "a run", "--tour").done
    lines = [" ".join(line.split()) for line in out.splitlines()]
    own, other = spanlm.load("a run"), spanlm.load("a run/lstm")
    assert f"this model test ppl {own.evaluate().perplexity:.2f}" in lines
    assert f"LSTM of the same size test ppl {other.evaluate().perplexity:.2f}" in lines
    assert other.config.model.memory == NoMemoryConfig()
    assert replace(other.config, model=own.config.model) == own.config, "nothing else differs"
    sizes = [sum(p.numel() for p in run.model.parameters()) for run in (own, other)]
    assert sizes[1] == pytest.approx(sizes[0], rel=0.1)
    at = next(i for i, line in enumerate(lines) if line.startswith("three lines"))
    written = [line.removeprefix("  ") for line in out.splitlines()[at + 1 : at + 4]]
    assert len(written) == 3
    assert all(set(line.split()) <= {*own.vocabulary.words, "…"} for line in written)
    assert lines[at + 4] == ""
    page = Path("a run/attention.html").read_text(encoding="utf-8")
    assert "mat" in page
    assert "://" not in page.replace("http://www.w3.org", ""), "nothing is fetched"
    assert "open a run/attention.html in a browser" in out
    assert out.splitlines()[-1].startswith("next: spanlm score 'a run' FILE · spanlm generate 'a run' --prompt")
    assert "Test it once: spanlm evaluate 'a run' --split test" in out


def test_the_tour_of_a_resumed_run_trains_nothing_again(cli: Cli, prose: Path) -> None:
    command = ["train", "demo", *SMALL, "--corpus", prose, "--out", "run", "--tour"]
    first = cli(*command).done
    again = cli(*command, "--resume", "auto").done
    assert not [line for line in again.splitlines() if line.startswith("epoch")]
    assert [line for line in first.splitlines() if "test ppl" in line] == [
        line for line in again.splitlines() if "test ppl" in line
    ]


def test_the_tour_of_a_text_with_blank_lines(cli: Cli, tiny_corpus: Path) -> None:
    cli("train", "demo", *SMALL, "--corpus", tiny_corpus, "--out", "run", "--tour").done  # noqa: B018 (checks)
    assert Path("run/attention.html").exists()


@pytest.mark.parametrize("option", ["--model.memory.kind=none", "--model.memory.kind=ngram", "--model.head.tied=true"])
def test_the_tour_of_every_model(cli: Cli, prose: Path, option: str) -> None:
    more = ["--model.embedding_size=4"] if "tied" in option else []
    cli("train", "demo", *SMALL, option, *more, "--corpus", prose, "--out", "run", "--tour").done  # noqa: B018


def test_a_run_goes_on_with_the_text_it_was_begun_with(cli: Cli, tmp_path: Path) -> None:
    """Which may be no prose, if that was insisted on."""
    Path("a.tsv").write_text("".join(f"{n}\tthe cat sat on {n % 3}\n" for n in range(60)))
    small = ("--model.embedding_size=6", "--model.encoder.hidden_size=12", "--training.batching.batch_size=2")
    begin = ["train", "demo", "--corpus", "a.tsv", *small, "--training.epochs=1", "--out", "run"]
    cli(*begin).refused("a.tsv: TSV, not plain text", "--as-text")
    assert not Path("run").exists()
    assert cli(*begin, "--as-text").status == 0
    assert cli("train", "--out", "run", "--resume", "auto", "--training.epochs=2").status == 0
    assert cli("evaluate", "run").status == 0
    assert cli("evaluate", "run", "--corpus", tmp_path / "a.tsv").status == 0
    Path("b.tsv").write_text("0\tthe cat\n")
    cli("evaluate", "run", "--corpus", "b.tsv").refused("b.tsv: TSV, not plain text")


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
def test_few_lines_do_not_hide_another_encoding(cli: Cli, encoding: str) -> None:
    Path("a.txt").write_bytes("le café\n".encode(encoding))
    cli("train", "demo", "--corpus", "a.txt", "--out", "run").refused("a.txt", "it looks like", "iconv -f")


def test_a_configuration_can_come_from_a_pipe(tmp_path: Path, cli: Cli) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_text("training: {epochs: 7}"), daemon=True)
    writer.start()
    assert "epochs: 7" in cli("train", "--config", pipe, "--print_config").done
    cli("train", "--config", "/dev/zero", "--print_config").refused("/dev/zero", "1,048,576 bytes")
