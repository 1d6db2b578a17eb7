import json
import os
import re
import shutil
import threading
from dataclasses import replace
from glob import glob
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import load_file

import spanlm
from spanlm.cli import train, training_verbs
from spanlm.cli.demo_report import THETAS
from spanlm.cli.options import free_folder
from spanlm.config import RunConfig, nested
from spanlm.data.config import DataConfig
from spanlm.models.counting import count_parameters, lstm_budget, match_parameters
from spanlm.models.memories import NGramConfig, NoMemoryConfig
from spanlm.papers.registry import PRESETS
from spanlm.training.config import FinetuneConfig
from tests.cases import rest_slow
from tests.cli import conftest
from tests.cli.conftest import Cli, flat
from tests.conftest import tiny_lines

SMALL = (*conftest.SMALL, "--model.output_dropout=0", "--training.epochs=2")


# a run from end to end


def test_a_run_from_end_to_end(cli: Cli, tiny_corpus: Path) -> None:
    out = cli("train", "demo", *SMALL, "--corpus", tiny_corpus, "--out", "run").done
    assert "\x1b" not in out and "\r" not in out
    model = spanlm.load("run")
    assert f"θ_M {count_parameters(model.model).model:,} (without word representations)" in out
    assert ", ".join(f"{name} {len(tokens):,}" for name, tokens in model.corpus().splits.items()) in out
    epochs = [line for line in out.splitlines() if line.startswith("epoch")]
    assert [line.split()[1] for line in epochs] == ["1", "2"]
    best = re.search(r"best epoch (\d) of 2: valid ppl ([\d.]+)\. Test it once: spanlm evaluate run --split test", out)
    assert best is not None and best[2] in epochs[int(best[1]) - 1] and epochs[int(best[1]) - 1].endswith("best")
    files = {"config.yaml", "vocabulary.json", "model.safetensors", "metrics.jsonl", "checkpoints"}
    assert {path.name for path in Path("run").iterdir()} >= files
    # as if it had not ended
    text = Path("run/config.yaml").read_text(encoding="utf-8")
    Path("run/config.yaml").write_text(text.replace("epochs: 2\n", "epochs: 9\n"), encoding="utf-8")
    for words in (["evaluate", "run"], ["compare", "run", "--attention", "uniform"]):
        found = cli(*words)
        assert found.status == 0 and found.err.count("note: run: its training has not ended") == 1
    shutil.rmtree("run/checkpoints")
    assert cli("evaluate", "run").err == ""


def test_a_registered_corpus_is_a_text_without_an_option(cli: Cli) -> None:
    assert printed(cli, "daniluk2017/rnn", "ptb") == printed(cli, "daniluk2017/rnn", "--corpus", "ptb")
    assert printed(cli, "synthetic:copy,lag=3").data.corpus == "synthetic:copy,lag=3"
    assert printed(cli, "daniluk2017/rnn", "demo").data.corpus == "demo"


def test_going_on(cli: Cli, tiny_corpus: Path) -> None:
    command = ["train", "demo", *SMALL, "--corpus", tiny_corpus, "--data.documents=blank-line"]
    again = ["train", "--no-tour", "--out", "run", "--resume", "auto"]
    cli(*command, "--out", "run").done  # noqa: B018 (checks)
    out = cli(*again, "--training.epochs=3").done
    assert "going on from step" in out
    assert [line.split()[1] for line in out.splitlines() if line.startswith("epoch")] == ["3"]
    config = RunConfig.load(Path("run/config.yaml"))
    assert (config.training.epochs, config.data.documents) == (3, "blank-line")
    out = flat(cli(*again).done)
    assert "finished before, after 3 epochs; more epochs" in out
    assert "going on from" not in out
    cli(*again, "--training.epochs=2").refused("training.epochs=2: run has had 3 already", "more")
    cli(*again, "--training.optimizer.lr=0.5").refused("training.optimizer.lr=0.002, not 0.5")
    assert RunConfig.load(Path("run/config.yaml")) == config


# which folder, which configuration


def test_a_preset_without_its_stages_has_no_settings_of_them(cli: Cli, tmp_path: Path) -> None:
    name, file, zero = "wang2019/mos-ps-at-ptb", tmp_path / "f.yaml", ["--training.finetune.stages", "0"]
    preset = PRESETS[name].config
    expected = replace(preset, training=replace(preset.training, finetune=FinetuneConfig()))
    file.write_text("training: {finetune: {stages: 0}}\n")
    assert printed(cli, name, *zero) == printed(cli, name, "--config", "f.yaml") == expected != preset
    cli("train", name, *zero, "--training.finetune.epochs", "7").refused("training.finetune.epochs=7")
    file.write_text("training: {finetune: {epochs: 7}}\n")
    finetune = printed(cli, name, "--config", "f.yaml").training.finetune
    assert finetune == replace(preset.training.finetune, epochs=7)


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


def test_a_folder_without_a_run_is_no_demo(cli: Cli) -> None:
    assert "usage: spanlm train" in cli("train", "--help", "--out", "typo", "--resume", "auto").done
    assert not Path("typo").exists()


def test_another_kind_drops_the_old_parts_fields(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("model: {memory: {kind: ngram, order: 5}}\n")
    ngram, file = "--model.memory.kind=ngram", ["--config", "c.yaml"]
    for options, memory in (
        ([ngram], NGramConfig(order=4)),
        (["--model.memory.kind", "ngram"], NGramConfig(order=4)),
        ([ngram, "--model.memory.order=3"], NGramConfig(order=3)),
        (file, NGramConfig(order=5)),
        ([*file, "--model.memory.kind=none"], NoMemoryConfig()),
        # the same kind again keeps what the preset says
        (["--model.memory.kind=key_value"], PRESETS["demo"].config.model.memory),
    ):
        assert printed(cli, "demo", *options).model.memory == memory


@pytest.mark.parametrize(
    ("group", "fields"),
    [
        ("model", "{output_dropout: 0, memory: {kind: span_buffer, words: true, gate: {training_temperature: 1}}}"),
        ("training.optimizer", " {kind: sgd, lr: 0.5, clip: null}"),
    ],
)
def test_a_group_is_an_option_with_the_meaning_that_it_has_in_a_file(
    cli: Cli, tmp_path: Path, group: str, fields: str
) -> None:
    (tmp_path / "a.yaml").write_text(yaml.safe_dump(nested({group: yaml.safe_load(fields)})))
    asked = printed(cli, "demo", "--config", "a.yaml")
    assert asked != PRESETS["demo"].config
    assert printed(cli, "demo", f"--{group}", fields) == printed(cli, "demo", f"--{group}={fields}") == asked


def test_of_a_group_and_its_fields_what_is_typed_last_counts(cli: Cli) -> None:
    group = "--model.memory={kind: ngram, order: 3}"
    assert printed(cli, "demo", group, "--model.memory.order=2").model.memory == NGramConfig(order=2)
    assert printed(cli, "demo", "--model.memory.order=2", group).model.memory == NGramConfig(order=3)


def test_a_resumed_run_has_its_own_configuration(cli: Cli, tiny_run: Path) -> None:
    assert printed(cli, "--out", tiny_run, "--resume", "auto") == RunConfig.load(tiny_run / "config.yaml")
    assert printed(cli, "--out", tiny_run).model.encoder.hidden_size == 300


@pytest.mark.parametrize(("wanted", "budget"), rest_slow([("lstm9", None), ("1,500", 1500), ("0.0015M", 1500)]))
def test_matched_sizes_are_those_of_the_run(cli: Cli, tiny_corpus: Path, wanted: str, budget: int | None) -> None:
    rest = [option for option in SMALL if "hidden_size" not in option]
    out = cli("train", "demo", *rest, "--corpus", tiny_corpus, "--out", "run", "--match-parameters", wanted).done
    model = RunConfig.load(Path("run/config.yaml")).model
    asked = lstm_budget(9, model, 18) if budget is None else budget
    assert out.startswith(f"matched to {wanted}: model.encoder.hidden_size={model.encoder.hidden_size}, ")
    assert model == match_parameters(model, 18, asked) and model.encoder.hidden_size != 12


def test_the_next_free_folder(tmp_path: Path) -> None:
    config = RunConfig(data=DataConfig(corpus="texts/my.words.txt"))
    for expected in ("runs/daniluk2017-kvp-w5-my", "runs/daniluk2017-kvp-w5-my-2"):
        folder = free_folder("daniluk2017/kvp-w5", config.data.corpus)
        assert folder == Path(expected)
        folder.mkdir(parents=True)
    assert free_folder(None, "demo") == Path("runs/demo")
    Path("texts/poems").mkdir(parents=True)
    assert free_folder(None, "texts/poems/.") == free_folder(None, "texts/poems/x/..") == Path("runs/poems")


# the demo report


@pytest.mark.parametrize(
    ("words", "tour"),
    [
        ([], True),
        (["demo"], False),
        (["--config", "c.yaml"], False),
        (["--tour", "demo"], True),
        (["--no-tour", "--out", "x"], False),
        (["--out", "RUN", "--resume", "auto"], False),
    ],
    ids=str,
)
def test_who_gets_the_tour(tiny_run: Path, words: list[str], tour: bool) -> None:
    own = training_verbs.train([str(tiny_run) if word == "RUN" else word for word in words])
    train.completed(own)
    assert own.tour is tour


@pytest.fixture
def prose(tmp_path: Path) -> Path:
    path = tmp_path / "prose.txt"
    path.write_text("\n".join(line for line in tiny_lines(120, 3) if line) + "\n", encoding="utf-8")
    return path


@pytest.mark.slow
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
    page = Path("a run/attention.html").read_text(encoding="utf-8")
    assert "mat" in page
    assert "://" not in page.replace("http://www.w3.org", ""), "nothing is fetched"
    assert "open a run/attention.html in a browser" in out
    assert "Test it once: spanlm evaluate 'a run' --split test" in out
    again = cli("train", "--out", "a run", "--resume", "auto", "--tour").done
    assert not [line for line in again.splitlines() if line.startswith("epoch")], "nothing is trained again"
    assert {line for line in out.splitlines() if "test ppl" in line} <= set(again.splitlines())


@pytest.mark.slow
def test_the_tour_says_of_memory_and_cache_what_compare_says(cli: Cli, tiny_run: Path) -> None:
    """With the signs of what is saved: those of a difference to the better one, turned round with its interval."""
    shutil.copytree(tiny_run, "run")
    shown = flat(cli("train", "--out", "run", "--resume", "auto", "--tour").done)
    model = spanlm.load("run")
    corpus = model.corpus()
    window = min(len(corpus.splits[split]) for split in ("valid", "test"))
    best = model.tune_cache([window], corpus, "valid", thetas=THETAS).best
    cache = ("--cache", window, "--cache-theta", best.theta, "--cache-lambda", best.lambda_)
    found = json.loads(cli("compare", "run", "--attention", "none", *cache, "--json").done)["comparisons"]
    what = "without its memory this model needs ", f"a cache of the last {window} words saves "
    for one, sign, begin in zip(found, (1, -1), what, strict=True):
        numbers = re.findall(r"−?[0-9]+\.[0-9]{2}", shown.partition(begin)[2])[:3]
        bits = [one["whole"]["difference"], *one["whole"]["interval"][::sign]]
        assert [float(number.replace("−", "-")) for number in numbers] == pytest.approx(
            [sign * each for each in bits], abs=0.006
        )


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


def test_a_configuration_can_come_from_a_pipe(tmp_path: Path, cli: Cli) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_text("training: {epochs: 7}"), daemon=True)
    writer.start()
    assert "epochs: 7" in cli("train", "--config", pipe, "--print_config").done


# --- `--seeds N`: a family of runs ---


@pytest.fixture
def command(tiny_corpus: Path) -> list[object]:
    return ["train", "demo", *SMALL, "--training.batching.batch_size=16", "--corpus", tiny_corpus]


def weights(folder: str) -> dict[str, torch.Tensor]:
    return load_file(Path(folder) / "model.safetensors")


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    """Not the bytes of the files: their headers may be in another order."""
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.slow
def test_a_family_is_runs_that_differ_in_their_seed(cli: Cli, command: list[object]) -> None:
    out = cli(*command, "--training.seed=4", "--seeds", "2", "--out", "fam").done
    assert sorted(path.name for path in Path("fam").glob("seed-*")) == ["seed-4", "seed-5"]
    assert out.startswith("2 runs in fam; ") and epochs(out) == 4, "what they print is shown"
    assert re.findall(r"^(seed-\d): begins$", out, re.M) == ["seed-4", "seed-5"]
    assert out.splitlines()[-1] == "2 runs are trained. All as one: spanlm evaluate fam/seed-*"
    configs = [RunConfig.load(Path(f"fam/seed-{seed}/config.yaml")).to_tree() for seed in (4, 5)]
    assert [config["training"].pop("seed") for config in configs] == [4, 5]
    assert configs[0] == configs[1]
    cli(*command, "--training.seed=5", "--out", "alone").done  # noqa: B018 (checks)
    assert same(weights("fam/seed-5"), weights("alone"))
    assert not same(weights("fam/seed-4"), weights("alone"))
    found = json.loads(cli("evaluate", *sorted(glob("fam/*")), "--json").done)
    assert [member["run"] for member in found["members"]] == ["fam/seed-4", "fam/seed-5"]


@pytest.mark.slow
def test_a_family_keeps_its_first_seed_and_goes_on_past_one_that_fails(cli: Cli, command: list[object]) -> None:
    family = [*command, "--seeds", "2", "--out", "fam"]
    cli(*family).done  # noqa: B018 (checks)
    shutil.rmtree("fam/seed-1")
    cli("train", "--out", "fam", "--resume", "auto", "--seeds", "2").refused("begin with seed 2", "--seed 1")
    out = cli("train", "--out", "fam", "--resume", "auto", "--seeds", "2", "--seed", "1").done
    assert "; 1 finished before\n" in out and re.findall(r"^(seed-\d): begins$", out, re.M) == ["seed-1"]
    for damaged in Path("fam/seed-1/checkpoints").glob("step-*/position.json"):
        damaged.write_text("{")
    shutil.rmtree("fam/seed-2")
    result = cli(*family, "--resume", "auto")
    assert result.status == 1 and "1 of 2 runs failed. seed-1: " in result.err, result
    assert Path("fam/seed-2/model.safetensors").exists()


@pytest.mark.slow
def test_the_working_folder_holds_no_modules_of_other_processes(cli: Cli, command: list[object]) -> None:
    Path("statistics.py").write_text("raise SystemExit('not this one')\n")
    said = cli(*command, "--seeds", 2, "--out", "fam", "--jobs", 2).done
    assert said.splitlines()[-1].startswith("2 runs are trained")


@pytest.mark.slow
def test_seeds_side_by_side_are_those_in_turn(cli: Cli, command: list[object]) -> None:
    cli(*command, "--seeds", 2, "--out", "turn").done  # noqa: B018 (checks)
    side: list[object] = [*command, "--seeds", 2, "--out", "side", "--jobs", 2]
    assert epochs(cli(*side).done) == 0
    assert sorted(path.name for path in Path("side").glob("seed-*")) == ["seed-1", "seed-2"]
    assert all(same(weights(f"side/seed-{seed}"), weights(f"turn/seed-{seed}")) for seed in (1, 2))
    assert "best epoch" in Path("side/.logs/seed-2.log").read_text()
    assert "; 2 finished before\n" in cli(*side, "--resume", "auto").done
    cli(*side).refused("--out=side: already holds runs")


@pytest.mark.slow
def test_what_is_refused_is_refused_before_the_first_run(cli: Cli, command: list[object], tiny_run: Path) -> None:
    cli(*command, "--training.seed=2", "--seeds", "1", "--out", "fam").done  # noqa: B018 (checks)
    before = sorted(Path("fam").iterdir())
    cli("train", "--out", "fam", "--resume", "auto").refused("--out=fam: holds no run to go on with", "--seeds")
    for options, said in (
        ("3 --out fam", "--out=fam"),
        ("3 --out fam --resume auto --training.optimizer.lr=0.5", "fam/seed-2"),
        (f"2 --out {tiny_run} --resume auto", "is one run, not a family of seeds"),
        ("2 --training.seed=9223372036854775807", "training.seed=9223372036854775808"),
    ):
        cli(*command, "--seeds", *options.split()).refused(said)
    assert sorted(Path("fam").iterdir()) == before


def epochs(out: str) -> int:
    return sum(line.startswith("epoch ") for line in out.splitlines())
