"""Whatever a user types wrong: one line that names it and the way out, status 2, and nothing lost."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

from spanlm.data.text import Text, chunks
from tests.cli.conftest import SMALL, Cli
from tests.cli.test_cloze import BLOCKS
from tests.data.wikipedia.small import dump, json_lines, made_articles

REFUSED = """
frobnicate | unknown verb frobnicate | evaluate, compare, context, score, pairs, rescore, cloze, attend, generate
help wikipedia | unknown verb wikipedia | Did you mean 'data wikipedia'?
train dmo | unknown preset dmo | 'demo' | `spanlm presets`
train demo --training.epohcs=3 | unknown option --training.epohcs. | Did you mean '--training.epochs'?
train demo extra | extra
train demo --out new --model.embedding_size=7 --model.head.tied=true | model.head.tied=true needs a readout as wide
train demo --model.memory.kind=ngrm | model.memory.kind=ngrm: unknown | Did you mean 'ngram'?
train demo --corpus a.txt --data.corpus demo | --corpus=a.txt and --data.corpus=demo | take one
train demo --match-parameters LSTM300 --model.encoder.hidden_size 20 | --match-parameters=LSTM300 and
train demo --match-parameters LSTMx | --match-parameters=LSTMx
train demo --match-parameters nan | --match-parameters=nan
train demo --match-parameters -5 | --match-parameters
train demo --match-parameters 3.7G | --match-parameters=3.7G
train demo --match-parameters LSTM0 | hidden_size
train demo --corpus ptb | data.corpus=ptb | SPANLM_DATA | --data.download | --data-dir
train demo --corpus empty.txt | empty.txt: the file is empty
train demo --corpus latin.txt | latin.txt: not UTF-8 at byte 11
train demo --corpus folder | folder: no train.txt or train.txt.gz in it
train demo --training.start_from ~no-user/run --out new | training.start_from=~no-user/run: is not the folder of a run
train --config broken.yaml | broken.yaml: is not YAML
train --config field.yaml | field.yaml: unknown field training.epoch | Did you mean 'epochs'?
evaluate nowhere | nowhere: is not the folder of a run: there is no such folder.
evaluate folder | folder: is not the folder of a run: it has no config.yaml.
evaluate | RUN | `spanlm evaluate --help`
train demo --out= | spanlm: --out: is empty; name a file or a folder
train c.yaml | c.yaml: YAML, not plain text: `spanlm train --config` reads configurations
train mistyped/text | mistyped/text: neither a text that is there nor a preset
score RUN o.csv --out - | --out=-: name a file
rescore RUN --nbest n.jsonl --weights words=1 --scores s.jsonl | --scores=s.jsonl: a table is written
score RUN open.tsv --text text | open.tsv, line 2: a quotation mark is left open
score RUN inner.tsv --text text | inner.tsv, line 2: put a cell that begins with " in quotation marks as a whole
evaluate RUN --split dev | --split | 'dev' | 'train', 'valid', 'test'
evaluate RUN --batch-size 0 | spanlm: --batch-size=0: must be at least 1
evaluate RUN --cache 5 | --cache=5: needs --cache-theta, or --tune-cache
evaluate RUN --cache-theta 1 | --cache-theta: needs a cache | --cache 500
evaluate RUN --cache many | --cache=many: must be a whole number | `spanlm evaluate --help`
evaluate RUN --cache 5 --cache-theta -1 --cache-lambda 0.1 | --cache-theta=-1.0: must be finite and at least 0
evaluate RUN --cache 5 --tune-cache --corpus two.txt | two.txt has no valid part | --cache-theta
evaluate RUN --device nonsense | --device=nonsense: there is no such device here. Use auto or cpu.
evaluate RUN --device mps | --device=mps: is not used: it has no float64
evaluate x --dynamic-rate 1e-4 | --dynamic-rate: needs dynamic evaluation; add --dynamic
evaluate x --dynamic --dynamic-loss reward | --dynamic-loss | reward
evaluate x --tune-dynamic | --tune-dynamic: needs dynamic evaluation; add --dynamic
evaluate x --dynamic --dynamic-rate -1 | spanlm: --dynamic-rate=-1.0: must be finite and at least 0
evaluate x --dynamic --dynamic-decay 1.5 | spanlm: --dynamic-decay=1.5: must be in [0, 1]
evaluate x --dynamic --dynamic-statistics 0 | --dynamic-statistics=0: must be at least 1 segment
evaluate x --dynamic --dynamic-rate 1 2 | --dynamic-rate: 2 values are a grid | --tune-dynamic
evaluate x --dynamic --batch-size 4 | --batch-size=4: must be 1 with --dynamic
evaluate x --dynamic --cache 5 --cache-theta 1 --cache-lambda 0.1 | --dynamic and --cache do not go together
evaluate x other --dynamic | --dynamic: is for one run
evaluate RUN --weights 1 | --weights: is for several runs
evaluate RUN LSTM --weights 1 | spanlm: --weights 1: must be as many as models, 2
evaluate RUN LSTM --combine mean | --combine: 
evaluate RUN LSTM --tune-weights --weights 1 1 | --tune-weights and --weights do not go together
evaluate RUN RUN | is named twice
evaluate x --gate-temperature=0 | --gate-temperature=0.0: must be from 1e-06 on and finite
evaluate RUN --gate-temperature 1 | --gate-temperature: this model has no span buffer (model.memory.kind=key_value)
evaluate SPANS RUN --gate-temperature 1 | --gate-temperature: is for one run
evaluate RUN --parts | --parts: this model has no span buffer | model.memory.kind=span_buffer
evaluate a b --parts | --parts: is for one run; take each of the 2 apart
evaluate a --parts --cache 5 --cache-theta 1 --cache-lambda 0.1 | --parts and --cache do not go together
evaluate RUN --format kenlm --state carry | --format=kenlm and --state do not go together
evaluate RUN --format kenlm --tune-weights | --tune-weights
evaluate RUN --format kenlm --json | --format=kenlm and --json do not go together
evaluate RUN --format kenlm --debug 1 | --debug=1: is for --format srilm
score RUN two.txt --base 3 | --base | '3' | '2', 'e', '10'
score RUN two.txt --combine linear | --combine: is for several runs
score RUN LSTM two.txt --weights 0 0 | spanlm: --weights 0 0: must be above 0 in sum
score RUN missing.txt | missing.txt: no such file
score RUN two.txt --out nowhere/s.tsv | --out=nowhere/s.tsv | no folder nowhere
score RUN reserved.txt --out s.tsv | reserved.txt | line 2
score RUN empty.txt --out s.tsv | empty.txt: the text is empty
score RUN two.txt none.txt | spanlm: none.txt
attend RUN | --text --file --sentence --by-lag --flatness
attend RUN --text a --by-lag | --text | --by-lag
attend RUN LSTM --text a --out a.html | 2 runs: --text takes one; several stand side by side
attend RUN --file empty.txt --out a.csv | empty.txt: the text is empty
generate RUN --temperature -1 | --temperature=-1.0: must be 0, or from 0.001 on
generate RUN --prompt <eos> | <eos> | reserved
data wikipedia --source ~no-user/a.jsonl --out new | --source=~no-user/a.jsonl: no such file or folder
bench folder | folder: is a folder; name a preset, or a file
bench demo --rounds 0 | spanlm: --rounds=0: must be at least 1
bench demo --rounds 1.5 | --rounds=1.5: must be a whole number
data wikpedia | data wikpedia: no corpus that can be made | Did you mean 'wikipedia'?
data wikipedia | required: --source, --out | see `spanlm data wikipedia --help`
data wikipedia --source wiki.jsonl --out out --category ( | --category=(: no regular expression | missing )
data wikipedia --source wiki.jsonl --out out --category Q | --category=Q: is found in no category | People
data wikipedia --source wiki.jsonl --out out --vocabulary 2 | --vocabulary=2: must be at least 3
data wikipedia --source wiki.jsonl --out out --articles 2 | --articles=2: must be at least 3
data wikipedia --source wiki.jsonl --out out --jobs 0 | --jobs=0: must be at least 1
data wikipedia --source wiki.jsonl --out wiki.xml | --out= | wiki.xml: is there already
reproduce daniluk2017 --corpus wikipedia --data-dir ~no-user --dry-run | --corpus=wikipedia
presets demo lstm | unrecognized arguments: lstm
bench | PRESET | demo, daniluk2017/… | `spanlm presets`
bench demo demo | demo | twice
bench merity2018/awd-pbt | merity2018/awd-pbt | merity2018/awd-ptb
bench merity2018/awd-ptb | data.corpus=ptb | --data-dir
cloze RUN q.txt missing.txt | missing.txt: no such file
cloze RUN blank.txt | blank.txt: no question in it
cloze RUN  | QUESTIONS
cloze RUN q.txt --out r.csv | --out=r.csv: JSON lines are written, not a table. Name it .jsonl.
cloze RUN q.txt --context half | --context | 'half'
cloze RUN q.txt --limit 0 | --limit=0: must be at least 1
cloze RUN q.txt --out nowhere/r.jsonl | --out=nowhere/r.jsonl | no folder nowhere
reproduce | PAPER
reproduce daniluk2018 | daniluk2018 | Did you mean 'daniluk2017'
reproduce daniluk2017 --scale smal | --scale=smal | small
reproduce daniluk2017 --table 2e | --table=2e
reproduce daniluk2017 --table 2d --corpus demo | --table=2d | --corpus cbt
reproduce daniluk2017 --seeds 1 1 | --seeds | different
reproduce daniluk2017 --jobs 0 | --jobs=0: must be at least 1
reproduce daniluk2017 --table 2b --rows lstm | --rows=lstm | not in the table
reproduce daniluk2017 --corpus no-such | no-such
reproduce daniluk2017 --tabel 2b | unknown option --tabel | --table
reproduce salton2017 | --table: must be given at scale small: 1 (ptb), 2 (wikitext-2)
reproduce li2020 --table 4 | --table=4 | Choose from: 1, 2, 3, 3-wt2, state, state-wt2
sweep no.yaml | no.yaml | No such file
sweep c.yaml --jobs 0 | --jobs=0: must be at least 1
sweep c.yaml --on dask | --on=dask: must be ray, or ray:ADDRESS
sweep c.yaml --gpus-per-run 0.5 | --gpus-per-run=0.5: needs --on ray
context RUN --positions 1 | --positions=1: must be at least 2
context RUN --lengths 0 3 | --lengths | at least 1
context RUN --lengths 5000 | lengths 5000: at the places that were drawn a context has
context RUN --out x.html | x.html | .svg
attend RUN --document 999 --out a.svg | --document=999: must be from 1 to | the documents of tiny test
attend RUN --document 0 --out a.svg | --document=0
attend RUN --from 0 --out a.svg | --from=0: must be from 1 to
attend RUN --document 1 --from 9999 --out a.svg | --from=9999: must be from 1 to | document 1 of
attend RUN --document 1 --words 0 --out a.svg | --words=0: must be from 1 to 20,000
attend RUN --document 1 --words 20001 --out a.svg | --words=20001: must be from 1 to 20,000
attend RUN --text a --words 3 --out a.svg | --words=3: is for --document and --from, not for --text
attend RUN --text a --from 3 --out a.svg | --text and --from do not go together
attend RUN --by-lag --document 3 --out a.svg | --by-lag and --document do not go together
attend RUN --by-lag --out a.npz | cannot write .npz
attend RUN --text the --out a | a: cannot write a file without a suffix; end it in .html, .svg, .png, .pdf, .csv or .npz
attend RUN --text the --out a.json | a.json: cannot write .json
attend RUN --text the --out folder | --out=folder: is a folder
attend RUN --sentence a --out a.html | cannot write .html
attend RUN --flatness --out a.svg | cannot write .svg
attend RUN --sentence a --text b | --text and --sentence do not go together
attend RUN --by-lag --flatness | --by-lag and --flatness do not go together
attend RUN --sentence a --words 3 | --words=3: is for --document and --from
attend RUN --by-lag --gate-temperature 1 | --gate-temperature=1.0: is for --text | not for --by-lag
cloze RUN LSTM | the following arguments are required: QUESTIONS
"""


def rows(table: str) -> list[Any]:
    """A case a line: a command, and what the error says of it, parted by |."""
    cells = [[cell.strip() for cell in line.split(" | ")] for line in table.strip().splitlines()]
    return [pytest.param(command, parts, id=command) for command, *parts in cells]


@pytest.fixture
def broken_files(tmp_path: Path) -> None:
    articles = made_articles(40)
    contents = {
        "empty.txt": b"",
        "blank.txt": b"\n",
        "latin.txt": b"the cat\ncaf\xe9 sat\nthe\nmat\n",
        "reserved.txt": b"the\ncat <eos> sat\n",
        "two.txt": b"the cat\nsat\n",
        "q.txt": "".join(BLOCKS).encode(),
        "n.jsonl": b'{"id": 1, "hyps": [{"text": "cat", "score": -1}]}\n',
        "c.yaml": b"training:\n  epochs: 3\n",
        "open.tsv": b'id\ttext\n1\t"the cat\n2\tsat\n',
        "inner.tsv": b'id\ttext\n1\t"the" cat\n',
        "broken.yaml": b"training: [",
        "field.yaml": b"training:\n  epoch: 3\n",
        "wiki.jsonl": json_lines(articles),
        "wiki.xml": dump(articles),
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "folder").mkdir()


@pytest.mark.usefixtures("broken_files")
@pytest.mark.parametrize(("command", "parts"), rows(REFUSED))
def test_one_line_and_status_2(
    cli: Cli, tiny_run: Path, lstm_run: Path, span_run: Path, tmp_path: Path, command: str, parts: list[str]
) -> None:
    runs = {"RUN": tiny_run, "LSTM": lstm_run, "SPANS": span_run}
    before = sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*"))
    cli(*(runs.get(word, word) for word in command.split())).refused(*parts)
    assert sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*")) == before, "files were left behind"


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
    """Nor runs/, which is made for a run without --out."""
    command = ["train", "demo", *SMALL, "--corpus", tiny_corpus]
    for where in ([], ["--out", "run"]):
        cli(*command, *where, "--model.encoder.hidden_size=10").refused("Use 9 or 12.")
    assert not Path("runs").exists() and cli(*command, "--out", "run").status == 0


def test_a_loss_that_is_no_number_is_a_failure_not_bad_input(cli: Cli, tiny_corpus: Path) -> None:
    wild = ["--training.optimizer.kind=sgd", "--training.optimizer.lr=1e38", "--training.optimizer.clip=null"]
    result = cli("train", "demo", *SMALL, "--corpus", tiny_corpus, "--out", "run", *wild)
    result.refused(
        "is not finite",
        "Start again in another folder with a lower training.optimizer.lr or training.optimizer.clip.",
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
