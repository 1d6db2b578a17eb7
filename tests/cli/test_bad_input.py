"""Whatever a user types wrong, or damages: one line that names it and the way out, status 2, and nothing lost."""

from __future__ import annotations

import bz2
import gzip
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spanlm.data.text import Text, chunks
from tests.cli.conftest import SMALL, Cli
from tests.cli.test_cloze import BLOCKS
from tests.cli.test_rescore import LISTS, REFERENCES
from tests.data.wikipedia.small import dump, json_lines, made_articles
from tests.scoring.test_arpa import TOY

REFUSED = """
frobnicate | unknown verb frobnicate
help wikipedia | unknown verb wikipedia | Did you mean 'data wikipedia'?
train dmo | unknown preset dmo
train demo --training.epohcs=3 | unknown option --training.epohcs | Did you mean '--training.epochs'?
train demo --out new --model.embedding_size=7 --model.head.tied=true | model.head.tied=true
train demo --model.memory.kind=ngrm | model.memory.kind=ngrm | Did you mean 'ngram'?
train demo --corpus a.txt --data.corpus demo | --corpus=a.txt and --data.corpus=demo
train demo --match-parameters LSTM300 --model.encoder.hidden_size 20 | --match-parameters=LSTM300
train demo --match-parameters LSTMx | --match-parameters=LSTMx
train demo --match-parameters LSTM0 | hidden_size
train demo --corpus ptb | data.corpus=ptb
train demo --corpus empty.txt | empty.txt
train demo --training.start_from ~no-user/run --out new | training.start_from=~no-user/run
train --config broken.yaml | broken.yaml
train --config field.yaml | field.yaml | Did you mean 'epochs'?
evaluate nowhere | nowhere
evaluate | RUN
train demo --out= | --out
train c.yaml | c.yaml
train mistyped/text | mistyped/text
score RUN o.csv --out - | --out=-
rescore RUN --nbest n.jsonl --weights words=1 --scores s.jsonl | --scores=s.jsonl
score RUN open.tsv --text text | open.tsv, line 2
evaluate RUN --batch-size 0 | --batch-size=0
evaluate RUN --cache 5 | --cache=5
evaluate RUN --cache-theta 1 | --cache-theta
evaluate RUN --cache many | --cache=many
evaluate RUN --cache 5 --cache-theta -1 --cache-lambda 0.1 | --cache-theta=-1.0
evaluate RUN --cache 5 --tune-cache --corpus two.txt | two.txt has no valid part
evaluate RUN --device nonsense | --device=nonsense
evaluate RUN --device mps | --device=mps
evaluate x --dynamic-rate 1e-4 | --dynamic-rate
evaluate x --tune-dynamic | --tune-dynamic
evaluate x --dynamic --dynamic-rate -1 | --dynamic-rate=-1.0
evaluate x --dynamic --dynamic-statistics 0 | --dynamic-statistics=0
evaluate x --dynamic --dynamic-rate 1 2 | --dynamic-rate
evaluate x --dynamic --batch-size 4 | --batch-size=4
evaluate x --dynamic --cache 5 --cache-theta 1 --cache-lambda 0.1 | --dynamic and --cache do not go together
evaluate x other --dynamic | --dynamic
evaluate RUN --weights 1 | --weights
evaluate RUN LSTM --weights 1 | --weights 1
evaluate RUN LSTM --tune-weights --weights 1 1 | --tune-weights and --weights do not go together
evaluate RUN RUN | is named twice
evaluate x --gate-temperature=0 | --gate-temperature=0.0
evaluate RUN --gate-temperature 1 | --gate-temperature
evaluate SPANS RUN --gate-temperature 1 | --gate-temperature
evaluate RUN --parts | --parts
evaluate a b --parts | --parts
evaluate a --parts --cache 5 --cache-theta 1 --cache-lambda 0.1 | --parts and --cache do not go together
evaluate RUN --format kenlm --state carry | --format=kenlm and --state do not go together
evaluate RUN --format kenlm --debug 1 | --debug=1
score RUN two.txt --combine linear | --combine
score RUN LSTM two.txt --weights 0 0 | --weights 0 0
score RUN two.txt --out nowhere/s.tsv | --out=nowhere/s.tsv
score RUN reserved.txt --out s.tsv | reserved.txt
score RUN empty.txt --out s.tsv | empty.txt
score RUN two.txt none.txt | none.txt
attend RUN | --text --file --sentence --by-lag --flatness
attend RUN --text a --by-lag | --text
attend RUN LSTM --text a --out a.html | --text
generate RUN --temperature -1 | --temperature=-1.0
generate RUN --prompt <eos> | <eos>
data wikipedia --source ~no-user/a.jsonl --out new | --source=~no-user/a.jsonl
bench folder | folder: is a folder
bench demo --rounds 1.5 | --rounds=1.5
data wikpedia | Did you mean 'wikipedia'?
data wikipedia --source wiki.jsonl --out out --category ( | --category=(
data wikipedia --source wiki.jsonl --out out --category Q | --category=Q
data wikipedia --source wiki.jsonl --out out --vocabulary 2 | --vocabulary=2
data wikipedia --source wiki.jsonl --out out --jobs 0 | --jobs=0
data wikipedia --source wiki.jsonl --out wiki.xml | --out=
data wikipedia --source wiki.jsonl --out out --on ray | on=ray
reproduce daniluk2017 --corpus wikipedia --data-dir ~no-user --dry-run | --corpus=wikipedia
bench demo demo | demo
bench merity2018/awd-pbt | merity2018/awd-pbt
bench merity2018/awd-ptb | data.corpus=ptb
cloze RUN q.txt missing.txt | missing.txt
cloze RUN blank.txt | blank.txt
cloze RUN q.txt --out r.csv | --out=r.csv
cloze RUN q.txt --limit 0 | --limit=0
reproduce daniluk2018 | Did you mean 'daniluk2017'
reproduce daniluk2017 --scale smal | --scale=smal
reproduce daniluk2017 --table 2e | --table=2e
reproduce daniluk2017 --table 2d --corpus demo | --table=2d
reproduce daniluk2017 --seeds 1 1 | --seeds
reproduce daniluk2017 --table 2b --rows lstm | --rows=lstm
reproduce daniluk2017 --tabel 2b | unknown option --tabel
reproduce salton2017 | --table
reproduce li2020 --table 4 | --table=4
sweep c.yaml --jobs 0 | --jobs=0
sweep c.yaml --on dask | --on=dask
sweep c.yaml --gpus-per-run 0.5 | --gpus-per-run=0.5
context RUN --positions 1 | --positions=1
context RUN --lengths 0 3 | --lengths
context RUN --out x.html | x.html
attend RUN --document 999 --out a.svg | --document=999
attend RUN --from 0 --out a.svg | --from=0
attend RUN --document 1 --from 9999 --out a.svg | --from=9999
attend RUN --document 1 --words 0 --out a.svg | --words=0
attend RUN --text a --from 3 --out a.svg | --text and --from do not go together
attend RUN --by-lag --document 3 --out a.svg | --by-lag and --document do not go together
attend RUN --by-lag --out a.npz | cannot write .npz
attend RUN --text the --out a | without a suffix
attend RUN --text the --out folder | --out=folder
attend RUN --sentence a --out a.html | cannot write .html
attend RUN --by-lag --gate-temperature 1 | --gate-temperature=1.0
rescore RUN --nbest n.txt | --weights
rescore RUN --nbest n.txt --tune | --tune
rescore RUN --nbest n.txt --weights lm=1 | no score lm
rescore RUN --nbest n.txt --weights total | total
rescore RUN --nbest n.txt --weights total=1_0 | --weights total=1_0
rescore RUN --nbest n.txt --weights n.txt | n.txt
rescore RUN --nbest n.txt --weights total=1 --refs blank.txt | blank.txt
rescore RUN --nbest n.txt --weights total=1 --format kaldi | line 1
rescore RUN --nbest n.txt --weights total=1 --out n.txt | --out=n.txt
rescore RUN --nbest n.txt --weights total=1 --nbest-out n.txt | --nbest-out=n.txt
rescore RUN --nbest n.txt --weights total=1 --refs r.txt --out r.txt | --out=r.txt
rescore RUN --nbest n.txt --weights total=1 --out o --nbest-out o | o: is the file of two options
pairs RUN p.jsonl --by item --out o | line 1: no column item
pairs RUN p.jsonl --critical x,y,z --out o | --critical=x,y,z
pairs RUN p.jsonl --critical r --out o | line 1
pairs RUN p.jsonl --good s --out o | line 1: no column s
pairs RUN same.jsonl --strict --out o | line 1
pairs RUN two.txt | --format
score RUN s.csv --out o | --text
score RUN s.csv --text sent --out o | line 2: no column sent
score RUN s.csv --text text --keep items --out o | Did you mean 'item'
score RUN s.csv --text text --order item --out o | --order=item
score RUN s.csv --order item --out o | --order
score RUN s.csv --text text --document item --out o | --document=item
score RUN s.csv --text text --state document --out o | --state=document
score RUN s.csv --input jsonl --out o | --input=jsonl
score RUN s.csv --keep item --as-text --out o | --keep
score RUN s.csv --text text --as-text --out o | --text=text
score RUN s.csv --text text --oov error --out o | line 3
score RUN s.csv --text text --line item --rows tokens | --line=item
score RUN word.csv --text text --out o | a column word
score RUN word.csv --text text --prefix x --out o | a column xword
score RUN word.csv --text text --state carry --order word --out o | line 2: word=a
score s.csv --text text | s.csv
score UNOPENED two.txt --state carry | --state=carry
train demo --model.memory={"kind":nram} | model.memory.kind=nram
train demo --model.memory={"gate":{}} | model.memory.gate={}
train demo --model.memory={"kind":[} | model.memory
train demo --model.memory=ngram | model.memory=ngram
train demo --data=ptb | data=ptb
train demo --model.encoder={"hidden_size":30} --match-parameters 300 | --model.encoder.hidden_size=30
train demo --data={"corpus":ptb} --corpus demo | --data.corpus=ptb
train ngram --ngram={"order":9} | ngram.order=9
train --match-parameters 300K --hidden-size=64 | hidden_size=64
train demo --seeds 0 | --seeds=0
train demo --seeds 2 --tour | --tour and --seeds do not go together
train demo --seeds 2 --jobs 0 | --jobs=0
train demo --jobs 2 | --jobs=2
train demo --on ray | --on=ray
train --out typo --resume auto | --out=typo
compare RUN | name another run
compare RUN LSTM --attention none | --attention
compare LSTM --attention none | does not attend
compare RUN UNOPENED | --state line
compare RUN LSTM --out x.txt | x.txt
compare RUN LSTM --corpus two.txt | a text of 5 tokens
evaluate x --attention flat | --attention=flat
score RUN two.txt --attention window=4 | --attention=window=4
evaluate RUN --attention none --dynamic | --attention=none
evaluate RUN LSTM --attention none | --attention=none
train ngram two.txt --order 7 --out o | order=7
train ngram two.txt --ngram.cache_share 0.5 --out o | cache_share=0.5
train ngram two.txt --epochs 3 --out o | unknown option --epochs
train ngram empty.txt --out o | empty.txt
serve --host 0.0.0.0 | Add --token
serve --port 65536 | --port=65536
serve nowhere --port 0 | nowhere
"""


def rows(table: str) -> list[Any]:
    """A case a line: a command, and the field or file that the error names, parted by |."""
    cells = [[cell.strip() for cell in line.split(" | ")] for line in table.strip().splitlines()]
    return [pytest.param(command, parts, id=command) for command, *parts in cells]


@pytest.fixture
def broken_files(tmp_path: Path) -> None:
    articles = made_articles(40)
    contents = {
        "empty.txt": b"",
        "blank.txt": b"\n",
        "reserved.txt": b"the\ncat <eos> sat\n",
        "two.txt": b"the cat\nsat\n",
        "q.txt": "".join(BLOCKS).encode(),
        "n.jsonl": b'{"id": 1, "hyps": [{"text": "cat", "score": -1}]}\n',
        "c.yaml": b"training:\n  epochs: 3\n",
        "n.txt": LISTS.encode(),
        "r.txt": REFERENCES.encode(),
        "p.jsonl": b'{"sentence_good": "a b", "sentence_bad": "a", "r": "c"}\n',
        "same.jsonl": b'{"sentence_good": "a b", "sentence_bad": "a  b"}\n',
        "s.csv": b"item,text\n1,the\n2,zebra\n",
        "word.csv": b"word,xword,text\na,1,the\n",
        "open.tsv": b'id\ttext\n1\t"the cat\n2\tsat\n',
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
    cli: Cli,
    tiny_run: Path,
    lstm_run: Path,
    span_run: Path,
    unopened_run: Path,
    tmp_path: Path,
    command: str,
    parts: list[str],
) -> None:
    runs = {"RUN": tiny_run, "LSTM": lstm_run, "SPANS": span_run, "UNOPENED": unopened_run}
    before = sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*"))
    result = cli(*(runs.get(word, word) for word in command.split()))
    result.refused(*parts, out=None if "ngram" in command else "")
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


TEXT = b"the cat sat on the mat\n" * 60
INPUTS: dict[str, tuple[str, bytes, str]] = {
    "train": ("a.txt", TEXT, f"train demo {' '.join(SMALL)} --corpus FILE --out new"),
    "train ngram": ("a.txt", TEXT, "train ngram --ngram.fallback=[0.5,1,1.5] --corpus FILE --out new"),
    "evaluate": ("a.txt", TEXT, "evaluate RUN --corpus FILE"),
    "ARPA": ("a.arpa", TOY.encode(), "evaluate FILE --corpus plain.txt"),
    "ARPA, by KenLM": ("a.lm", TOY.encode(), "score FILE plain.txt"),
    "score": ("a.txt", TEXT, "score RUN FILE"),
    "a table": ("a.csv", b"item,text\n1,the cat\n2,a mat\n", "score RUN FILE --text text"),
    "attend": ("a.txt", b"the cat sat\n", "attend RUN --file FILE --out a.csv"),
    "cloze": ("a.txt", "\n".join(BLOCKS).encode(), "cloze RUN FILE"),
    "pairs": ("a.jsonl", b'{"sentence_good": "the cat", "sentence_bad": "cat the"}\n', "pairs RUN FILE"),
    "n-best": (
        "a.jsonl",
        b'{"id": 1, "hyps": [{"text": "the cat", "score": -1}]}\n',
        "rescore RUN --nbest FILE --weights words=1",
    ),
    "Wikipedia": ("a.jsonl", json_lines(made_articles(9)), "data wikipedia --source FILE --vocabulary 99 --out wiki"),
}


def stored(content: bytes) -> bytes:
    """Gzip without compression, so that a flipped byte is another letter, which nothing but the checksum tells."""
    packer = zlib.compressobj(0, wbits=31)
    return packer.compress(content) + packer.flush()


def flipped(packed: bytes, place: int) -> bytes:
    return packed[:place] + bytes([packed[place] ^ 1]) + packed[place + 1 :]


DAMAGES: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "flipped early": (".gz", lambda content: flipped(stored(content), 15 + len(content) // 3)),
    "flipped late": (".gz", lambda content: flipped(stored(content), 14 + len(content))),
    "cut": (".gz", lambda content: gzip.compress(content)[:-3]),
    "bzip2 flipped": (".bz2", lambda content: flipped(bz2.compress(content), -3)),
    "bzip2 more": (".bz2", lambda content: bz2.compress(content) + b"behind"),
}


@pytest.mark.parametrize(
    ("verb", "damage"),
    [
        *((verb, "flipped late") for verb in INPUTS),
        *(("score", damage) for damage in DAMAGES if damage != "flipped late"),
        *((verb, "") for verb in INPUTS),
        ("Wikipedia", "cut"),
    ],
)
def test_a_damaged_file_is_refused_and_a_whole_one_read(
    cli: Cli, tiny_run: Path, tmp_path: Path, verb: str, damage: str
) -> None:
    """A whole one has two members."""
    name, content, words = INPUTS[verb]
    if damage:
        suffix, packed = DAMAGES[damage][0], DAMAGES[damage][1](content)
    else:
        pack, suffix = (bz2.compress, ".bz2") if "ARPA" in verb else (gzip.compress, ".gz")
        packed = pack(content[: len(content) // 2]) + pack(content[len(content) // 2 :])
    path = tmp_path / f"{name}{suffix}"
    path.write_bytes(packed)
    (tmp_path / "plain.txt").write_text("the cat\n")
    found = cli(*(str({"RUN": tiny_run, "FILE": path}.get(word, word)) for word in words.split()))
    if damage:
        assert found.status == 2 and path.name in found.err and "Traceback" not in found.err, found
        assert found.out.count("\n") <= (verb == "ARPA, by KenLM"), "no number is written"
    else:
        assert found.status == 0, found
