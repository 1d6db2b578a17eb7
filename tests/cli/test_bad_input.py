"""Whatever a user types wrong: one line that names it and the way out, status 2, and nothing lost."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from spanlm.data.text import Text, chunks
from tests.cli.conftest import Cli

SMALL = (
    "--model.embedding_size=6",
    "--model.encoder.hidden_size=12",
    "--training.batching.batch_size=4",
    "--training.batching.length=7",
    "--training.epochs=1",
)

COMMAND_LINES = [
    ("frobnicate", "unknown verb frobnicate", "train, evaluate, score, cloze, attend, generate, data"),
    ("help wikipedia", "unknown verb wikipedia", "Did you mean 'data wikipedia'?"),
    ("trian", "unknown verb trian", "Did you mean 'train'?"),
    # presets
    ("train dmo", "unknown preset dmo", "'demo'", "`spanlm presets`"),
    # options of train
    ("train demo --epocs 3", "unknown option --epocs", "Did you mean '--epochs'?"),
    ("train demo --training.epohcs=3", "unknown option --training.epohcs.", "Did you mean '--training.epochs'?"),
    ("train demo extra", "extra"),
    ("train demo --training.epochs=0", "training.epochs=0: must be at least 1"),
    ("train demo --model.memory.kind=ngrm", "model.memory.kind=ngrm: unknown", "Did you mean 'ngram'?"),
    (
        "train demo --corpus a.txt --data.corpus demo",
        "--corpus=a.txt and --data.corpus=demo",
        "take one",
    ),
    (
        "train demo --match-parameters LSTM300 --model.encoder.hidden_size 20",
        "--match-parameters=LSTM300 and --model.encoder.hidden_size=20",
        "take one",
    ),
    # corpora
    ("train demo --corpus ptb", "data.corpus=ptb", "SPANLM_DATA", "--data.download", "--data.dir"),
    ("train demo --corpus wikitext-2 --data.dir nowhere", "nowhere/wikitext-2", "SPANLM_DATA", "--data.download"),
    ("train demo --corpus empty.txt", "empty.txt: the file is empty"),
    ("train demo --corpus latin.txt", "latin.txt: not UTF-8 at byte 11"),
    ("train demo --corpus folder", "folder: no train.txt or train.txt.gz in it"),
    (
        "train demo --training.start_from ~no-user/run --out new",
        "training.start_from=~no-user/run: is not the folder of a run",
    ),
    # configuration files
    ("train --config broken.yaml", "broken.yaml: is not YAML"),
    ("train --config field.yaml", "field.yaml: unknown field training.epoch", "Did you mean 'epochs'?"),
    # runs
    ("evaluate nowhere", "nowhere: is not the folder of a run: there is no such folder."),
    ("evaluate folder", "folder: is not the folder of a run: it has no config.yaml."),
    # options of the other verbs
    ("evaluate", "RUN", "`spanlm evaluate --help`"),
    ("evaluate RUN --split dev", "--split", "'dev'", "'train', 'valid', 'test'"),
    ("evaluate RUN --batch-size 0", "spanlm: --batch-size=0: must be at least 1"),
    ("evaluate RUN --cache 5", "--cache=5: needs --cache-theta, or --tune-cache"),
    ("evaluate RUN --cache-theta 1", "--cache-theta: is for a cache", "--cache 500"),
    ("evaluate RUN --cache 5 --cache-theta 1 --cache-lambda 0.1 0.2", "--cache-lambda: 2 values", "--tune-cache"),
    ("evaluate RUN --cache 0 --tune-cache", "--cache=0: must be at least 1"),
    ("evaluate RUN --cache 5 --cache-theta -1 --cache-lambda 0.1", "--cache-theta=-1.0: must be finite and at least 0"),
    (
        "evaluate RUN --cache 9999 --tune-cache",
        "--cache=9999: must be at most 227: tiny test has no more tokens; take a smaller --cache",
    ),
    ("evaluate RUN --cache 5 --tune-cache --corpus two.txt", "two.txt has no valid part", "--cache-theta"),
    ("evaluate RUN --device nonsense", "--device=nonsense: there is no such device here. Use auto or cpu."),
    ("score RUN two.txt --base 3", "--base", "'3'", "'2', 'e', '10'"),
    ("attend RUN", "--text --file --sentence --by-lag --flatness"),
    ("attend RUN --text a --by-lag", "--text", "--by-lag"),
    ("generate RUN --temperature -1", "--temperature=-1.0: must be 0, or from 0.001 on"),
    ("generate RUN --top-p 2", "--top-p=2.0: must be in (0, 1]"),
    ("data wikipedia --source ~no-user/a.jsonl --out new", "--source=~no-user/a.jsonl: no such file or folder"),
    ("reproduce daniluk2017 --corpus wikipedia --data-dir ~no-user --dry-run", "--corpus=wikipedia"),
    ("generate RUN --prompt <eos>", "<eos>", "reserved"),
    ("presets demo lstm", "unrecognized arguments: lstm"),
    ("bench demo --rounds 0", "--rounds=0: must be at least 1"),
    ("bench demo --device nonsense", "--device=nonsense: there is no such device here. Use auto or cpu."),
]


@pytest.fixture
def broken_files(tmp_path: Path) -> None:
    contents = {
        "empty.txt": b"",
        "latin.txt": b"the cat\ncaf\xe9 sat\nthe\nmat\n",
        "two.txt": b"the cat\nsat\n",
        "broken.yaml": b"training: [",
        "list.yaml": b"- training\n",
        "field.yaml": b"training:\n  epoch: 3\n",
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "folder").mkdir()


@pytest.mark.usefixtures("broken_files")
@pytest.mark.parametrize(("command", "parts"), [pytest.param(row[0], row[1:], id=row[0]) for row in COMMAND_LINES])
def test_one_line_and_status_2(cli: Cli, tiny_run: Path, tmp_path: Path, command: str, parts: tuple[str, ...]) -> None:
    before = sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*"))
    cli(*(str(tiny_run) if word == "RUN" else word for word in command.split())).refused(*parts)
    assert sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*")) == before, "files were left behind"


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (
            "--model.encoder.hidden_size=400",
            "model.memory.roles=3 needs model.encoder.hidden_size divisible by 3, got 400",
        ),
        ("--training.device=nonsense", "training.device=nonsense: there is no such device here. Use auto or cpu."),
        ("--model.head.tied=true", "model.head.tied=true needs a readout as wide as the embedding"),
        (
            "--training.batching.kind=sentences --training.batching.long_sentences=refuse",
            "training.batching.length=7: ",
        ),
        (
            "--model.memory.kind=attentive",
            "model.memory.window=null: everything since the last reset is remembered",
        ),
    ],
)
def test_rooms_that_do_not_fit(cli: Cli, tiny_corpus: Path, option: str, message: str) -> None:
    cli("train", "demo", *SMALL, "--corpus", tiny_corpus, "--out", "run", *option.split()).refused(message)


@pytest.mark.parametrize(
    ("option", "size"),
    [
        ("model.encoder.hidden_size=3000000", "640,002,496,"),  # weights, gradients and two numbers of Adam for each
        (f"model.encoder.hidden_size={10**30}", "2^63 or more"),
        ("model.memory.window=1000000000000", ""),
        ("training.batching.eval_batch_size=1000000000000", ""),
    ],
)
def test_what_is_larger_than_the_memory(cli: Cli, tiny_corpus: Path, option: str, size: str) -> None:
    options = [*SMALL, "--training.batching.kind=streams", f"--{option}"]
    result = cli("train", "demo", "--corpus", tiny_corpus, *options, "--out", "new")
    result.refused(f"model: would take at least {size}", "bytes", "there are", "training.batching", out=None)
    assert not Path("new").exists()


def test_a_refused_run_leaves_its_folder_free(cli: Cli, tiny_corpus: Path) -> None:
    command = ["train", "demo", *SMALL, "--corpus", tiny_corpus, "--out", "run"]
    cli(*command, "--model.encoder.hidden_size=10").refused("Use 9 or 12.")
    assert cli(*command).status == 0


def test_a_loss_that_is_no_number_is_a_failure_not_bad_input(cli: Cli, tiny_corpus: Path) -> None:
    wild = ["--training.optimizer.kind=sgd", "--training.optimizer.lr=1e38", "--training.optimizer.clip=null"]
    result = cli("train", "demo", *SMALL, "--corpus", tiny_corpus, "--out", "run", *wild)
    result.refused(
        "is not finite",
        "Start again in another --out with a lower training.optimizer.lr or training.optimizer.clip.",
        status=1,
        out=None,
    )


@pytest.mark.usefixtures("broken_files")
def test_a_cache_that_cannot_be_written_is_a_failure(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, tiny_corpus: Path
) -> None:
    monkeypatch.setenv("SPANLM_CACHE", "empty.txt/cache")
    cli("train", "demo", "--corpus", tiny_corpus, "--out", "run").refused(
        "cannot write the cache", "SPANLM_CACHE", status=1
    )


def test_words_of_the_user_are_left_as_they_are(cli: Cli) -> None:
    """Only what an error begins with is an argument of the library."""
    for name in ("x,state=1", "split=valid"):
        cli("score", f"runs/{name}").refused(f"spanlm: runs/{name}: ")
    cli("score", "base=2").refused("spanlm: base=2: is not the folder of a run")


def test_a_text_that_becomes_too_large_is_refused_and_leaves_nothing(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of ten such members a hundred megabytes; what is small may be as even as it likes."""
    monkeypatch.setenv("SPANLM_CACHE", str(tmp_path / "cache"))
    member = gzip.compress(b"word " * 2_000_000 + b"\n")
    (tmp_path / "even.txt.gz").write_bytes(member)
    (tmp_path / "bomb.txt.gz").write_bytes(member * 10)
    cli("train", "demo", *SMALL, "--corpus", "bomb.txt.gz", "--out", "run").refused(
        "bomb.txt.gz: inflates", "200 times"
    )
    assert not (tmp_path / "run").exists() and not [path for path in tmp_path.rglob("cache/*") if path.is_file()]
    text = Text(tmp_path / "even.txt.gz")
    assert sum(map(len, chunks(text))) == 10_000_001
