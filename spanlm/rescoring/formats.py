r"""Read and write n-best lists in the formats of the tools that make them.

| format | a line of it |
|---|---|
| moses | `ID \|\|\| hypothesis \|\|\| name= value … \|\|\| total`, or `name=value`; further fields are kept |
| kaldi | `ID-N w1 w2 …`; in a folder: `words_text` or `text`, beside files of `ID-N score` (acwt, lmwt… are costs) |
| srilm | `ascore lscore nwords w1 w2 …` (log10), or `NBestList1.0` and `(bytelog) w1 w2 …`; a file a list |
| espnet | a folder with `1best_recog/`, `2best_recog/`, …; in each `text` (`ID w1 w2 …`) and `score` (`ID value`) |
| nemo | `hypothesis<TAB>score`, the same number of lines a list (`list_size`); IDs are 1, 2, … |
| jsonl | `{"id": …, "hyps": [{"text": …, "score": …}]}`; numbers beside the text are scores, other fields are kept |

Readers convert scores to natural logarithms: log10, bytelogs (1 is 1024/10000, as in SRILM), and negated costs. Scores
of Moses, ESPnet, NeMo and JSON lines stay as they are. Lists and hypotheses keep their order. A hypothesis may have no
words. A list without hypotheses (JSON lines, SRILM) gets one without words. A file's name may end in `.gz`; a folder's
hidden files are skipped. A Moses feature that a hypothesis lacks is 0. Kaldi's N run from 0 or 1 in every list; if they
do not, or have leading zeros, `ID-N` is an utterance with one hypothesis. Files of whole numbers beside Kaldi's texts
hold word ids, not scores.
"""

from __future__ import annotations

import json
import logging
import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_args

from spanlm.data.packed import opened, replacing_packed
from spanlm.data.tokenizer import written_words
from spanlm.data.vocabulary import EOS
from spanlm.errors import FEW, InputError, named, require
from spanlm.store.plain import c_number, json_value

Format = Literal["moses", "kaldi", "srilm", "espnet", "nemo", "jsonl"]
_NAMES = ", ".join(get_args(Format))
_LOG = logging.getLogger(__name__)
FOLDERS: tuple[Format, ...] = ("kaldi", "srilm", "espnet")
"""Formats whose output is a folder of files."""
TOTAL = "total"
BYTELOG = 1024 / 10000
"""Nats of one bytelog: a logarithm to base 1.0001, divided by 1024; SRILM takes ln 1.0001 for 1/10000."""
_KALDI_TEXTS = ("words_text", "text")
_KALDI_ID = re.compile(r"(?P<id>\S+)-(?P<rank>[0-9]+)")
_COSTS = ("acwt", "lmwt")
_KALDI_OTHERS = re.compile(r"utt2|spk2|reco2")
_ESPNET_FOLDER = re.compile(r"(?P<rank>[0-9]+)best_recog$")
_TENSOR = re.compile(r"tensor\((?P<value>[^,)]+).*\)$")
_NUMBER = r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?"
_NAME_VALUE = re.compile(r"(?<=\S)=(?=[-+.0-9][^\s=]*(?:\s|$))")
_SRILM_LINE = re.compile(rf"\s*{_NUMBER}\s+{_NUMBER}\s+[0-9]+(\s|$)")
_SRILM_SUFFIX = re.compile(r"(\.(nbest|score)(\.(gz|bz2))?|\.(gz|bz2))$")
_NEMO_LINE = re.compile(rf"[^\t]*\t\s*{_NUMBER}\s*")

Lines = dict[str, tuple[int, str]]
"""A line's number and text by its key, the first word."""


@dataclass(frozen=True)
class Hypothesis:
    """One hypothesis of a list.

    Attributes:
        text: the words as written, joined by single spaces.
        scores: natural logarithms by name, in the order of the file.
        more: further Moses fields, written back unchanged.
        fields: further JSON fields by name, written back unchanged.
    """

    text: str
    scores: dict[str, float] = field(default_factory=dict)
    more: tuple[str, ...] = ()
    fields: dict[str, Any] = field(default_factory=dict)

    @property
    def words(self) -> list[str]:
        return written_words(self.text)


@dataclass(frozen=True)
class NBestList:
    """The hypotheses of one utterance or sentence in file order; `fields` are further JSON fields of the list."""

    id: str
    hypotheses: tuple[Hypothesis, ...]
    fields: dict[str, Any] = field(default_factory=dict)


def read_nbest(
    path: Path, format: Format | None = None, list_size: int | None = None, *, strict: bool = False
) -> tuple[list[NBestList], Format]:
    """Read n-best lists and return them with their format; bad rows are skipped with a note.

    A bad row breaks the format, has other scores than most rows, a score that is not finite, or the word <eos>.

    Args:
        path: a file, or a folder of `kaldi`, `srilm` or `espnet`.
        format: the format of the lists; None: detected from the name and the first line.
        list_size: hypotheses per list, for `nemo`, whose files do not say.
        strict: refuse a bad row instead of skipping it.

    Raises:
        InputError: no format matches, an id is repeated, a list has no good row, or most rows are bad; names the file
            and the place.
    """
    if not path.exists():
        raise InputError(f"{path}: no such file; name a file or a folder of n-best lists")
    require(format is None or format in _FORMATS, "format", format, f"one of {', '.join(_FORMATS)}")
    format, lists = format or find_format(path), _Lists(list_size)
    read, _ = _FORMATS[format]
    read(path, lists)
    _leave_out_unlike(path, lists, sparse=format == "moses")
    _check_bad(path, lists, strict)
    first = next((hypothesis for hypotheses in lists.values() for hypothesis in hypotheses), None)
    if first is None:
        raise InputError(f"{path}: holds no hypotheses")
    if empty := [name for name, hypotheses in lists.items() if not hypotheses]:
        _LOG.info("note: %s: no hypotheses of %s; each such list counts as one without words", path, some(empty))
    nothing = [Hypothesis("", dict.fromkeys(first.scores, 0.0))]
    return [
        NBestList(name, tuple(hypotheses or nothing), lists.fields.get(name, {})) for name, hypotheses in lists.items()
    ], format


def without(lists: list[NBestList], words: Collection[str]) -> list[NBestList]:
    """Remove some words, such as noises, from all hypotheses."""

    def bare(hypothesis: Hypothesis) -> Hypothesis:
        return replace(hypothesis, text=" ".join(word for word in hypothesis.words if word not in words))

    return [replace(nbest, hypotheses=tuple(map(bare, nbest.hypotheses))) for nbest in lists]


def find_format(path: Path) -> Format:
    """Detect the format of a file or folder from its name and first line.

    Raises:
        InputError: no known format matches.
    """
    if path.is_dir():
        names = {entry.name for entry in path.iterdir()}
        if "1best_recog" in names:
            return "espnet"
        return "kaldi" if names & set(_KALDI_TEXTS) else "srilm"
    if not path.is_file():
        way = f"say by {named('format')} what it holds: {_NAMES}"
        raise InputError(f"{path}: is a pipe, which is read only once; {way}")
    if path.suffix in (".ctm", ".json", ".lat", ".slf"):
        problem = "lattices, CTM, and JSON as of WhisperX are no n-best lists"
        raise InputError(f"{path}: {problem}, which are read as {_NAMES}")
    line = next((line for _, line in numbered_lines(path)), "")
    if path.name.removesuffix(".gz").removesuffix(".bz2").endswith(".jsonl") or line.startswith("{"):
        return "jsonl"
    if "|||" in line:
        return "moses"
    if _NEMO_LINE.fullmatch(line):
        return "nemo"
    if line.startswith("NBestList") or _SRILM_LINE.match(line):
        return "srilm"
    if _KALDI_ID.fullmatch(line.split(maxsplit=1)[0] if line.strip() else ""):
        return "kaldi"
    raise InputError(f"{path}: no known n-best list begins so; say which by {named('format')}: {_NAMES}")


def write_nbest(path: Path, format: Format, lists: list[NBestList]) -> None:
    """Write lists in order; `kaldi`, `srilm` and `espnet` become a folder.

    Every score that the format can hold is written; the score `total` is that of the whole hypothesis.
    """
    _, write = _FORMATS[format]
    write(path, lists)


def some(names: list[str]) -> str:
    return names[0] + (f" and {len(names) - 1:,} more" if len(names) > 1 else "")


# --- reading ---


class _Lists(dict[str, list[Hypothesis]]):
    """Hypotheses, errors of `bad` rows and further `fields`, each by the list's id; the `size` of lists if known."""

    def __init__(self, size: int | None) -> None:
        super().__init__()
        self.size = size
        self.bad, self.fields = dict[str, list[str]](), dict[str, dict[str, Any]]()

    def add(self, name: str, read: Callable[..., Hypothesis], *row: Any) -> None:
        """Append the hypothesis that `read` makes of a row, or keep its error."""
        self.setdefault(name, [])
        try:
            self[name].append(read(*row))
        except InputError as error:
            self.bad.setdefault(name, []).append(str(error))


def numbered_lines(path: Path, *, blank: bool = False) -> Iterator[tuple[int, str]]:
    """Yield numbered lines of a file, from 1; lines of white space only if `blank`."""
    try:
        with opened(path) as file:
            for number, raw in enumerate(file, 1):
                line = raw.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
                if blank or line.strip():
                    yield number, line
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 ({error.reason}); convert it, as by iconv") from None


def _number(place: str, text: str, kind: str) -> float:
    value = c_number(text)
    if not abs(value) <= 1e100:  # larger scores overflow in sums and squares
        raise InputError(f"{place}: the {kind} {text!r} is not a finite number of at most 1e100")
    return value


def _leave_out_unlike(path: Path, lists: _Lists, sparse: bool) -> None:
    """Drop hypotheses with <eos>, or with other scores than most have; `sparse` features may differ."""

    def compared(hypothesis: Hypothesis) -> frozenset[str]:
        # sparse features have one value: compare only later values, `name.2` and so on
        names = hypothesis.scores.keys()
        return frozenset(name for name in names if not sparse or name.rpartition(".")[0] in names)

    def check(place: str, hypothesis: Hypothesis) -> Hypothesis:
        if compared(hypothesis) != usual:
            raise InputError(
                f"{place} has the scores {', '.join(hypothesis.scores) or 'none'}; "
                f"others have {', '.join(sorted(usual)) or 'none'}. All must have the same."
            )
        if EOS in hypothesis.text.split():
            raise InputError(f"{place} has the word {EOS}, which is reserved for the end of a line. Delete it.")
        return hypothesis

    counted = Counter(compared(hypothesis) for hypotheses in lists.values() for hypothesis in hypotheses)
    usual = max(counted, key=counted.__getitem__, default=frozenset[str]())
    for name, hypotheses in lists.items():
        lists[name] = []
        for rank, hypothesis in enumerate(hypotheses, 1):
            lists.add(name, check, f"{path}: hypothesis {rank} of {name}", hypothesis)


def _check_bad(path: Path, lists: _Lists, strict: bool) -> None:
    errors = [error for messages in lists.bad.values() for error in messages]
    if strict and errors:
        raise InputError(errors[0])
    if lost := [name for name, hypotheses in lists.items() if name in lists.bad and not hypotheses]:
        raise InputError(f"{lists.bad[lost[0]][0]} (no hypothesis of {some(lost)} is left)")
    rows = len(errors) + sum(map(len, lists.values()))
    if 2 * len(errors) > rows:
        raise InputError(f"{errors[0]} (so are {len(errors):,} of {rows:,} rows)")
    for error in errors[:FEW]:
        _LOG.info("note: %s", error)
    if errors:
        _LOG.info("note: %s: %d of %d hypotheses are left out; --strict refuses them", path, len(errors), rows)


def _read_moses(path: Path, lists: _Lists) -> None:
    last = ""
    for number, line in numbered_lines(path):
        place = f"{path}, line {number}"
        begin, bars, _ = line.partition("|||")
        name = (bars and begin.strip()) or last  # a row without an id continues its list
        if name != last and name in lists:
            raise InputError(f"{place}: the id {name} comes again after another; lists must be whole")
        lists.add(name, _moses_line, place, line)
        last = name


def _moses_line(place: str, line: str) -> Hypothesis:
    name, *parts = (part.strip() for part in line.split("|||"))
    if len(parts) < 3 or not name:
        raise InputError(f"{place}: {line[:60]!r} is not `ID ||| hypothesis ||| name= value ||| total`")
    text, features, total, *more = parts
    scores: dict[str, float] = {}
    group, values = "score", 0
    # cdec and Joshua write `name=value`
    for item in _NAME_VALUE.sub("= ", features).split():
        if item.endswith(("=", ":")):
            group, values = item[:-1], 0
            continue
        values += 1
        feature = group if values == 1 else f"{group}.{values}"
        if feature in scores or feature == TOTAL:
            raise InputError(f"{place}: the feature {feature} is there twice")
        scores[feature] = _number(place, item, f"feature {group}")
    scores[TOTAL] = _number(place, total, "total")
    return Hypothesis(" ".join(written_words(text)), scores, tuple(more))


def _read_kaldi(path: Path, lists: _Lists) -> None:
    texts = [path / name for name in _KALDI_TEXTS if (path / name).is_file()] if path.is_dir() else [path]
    if not texts:
        raise InputError(f"{path}: a folder of Kaldi's must hold {' or '.join(_KALDI_TEXTS)}")
    others = _files(path) if path.is_dir() else []
    others = [entry for entry in others if entry != texts[0] and not _KALDI_OTHERS.match(entry.name)]
    tables = {entry.name: (entry, table) for entry in others if _are_scores(entry, table := _by_key(entry))}
    rows, ranks = _by_key(texts[0]), dict[str, set[str]]()
    for key, (number, _) in rows.items():
        named = _KALDI_ID.fullmatch(key)
        if named is None:
            raise InputError(f"{texts[0]}, line {number}: {key!r} is not an id with a hypothesis' number, as utt-1")
        ranks.setdefault(named["id"], set()).add(named["rank"])
    # Kaldi sorts keys as text, utt-10 before utt-2
    keys = {name: [f"{name}-{rank}" for rank in sorted(numbers, key=int)] for name, numbers in ranks.items()}
    runs = {n: [{*map(str, range(start, start + n))} for start in (0, 1)] for n in {*map(len, ranks.values())}}
    if spoilt := [name for name, numbers in ranks.items() if numbers not in runs[len(numbers)]]:
        _LOG.info("note: %s: an utterance a line, as no ranks from 0 or 1 follow %s", texts[0], some(spoilt))
        keys = {key: [key] for key in rows}
    for name, list_keys in keys.items():
        for key in list_keys:
            lists.add(name, _keyed, key, rows[key][1], tables)


def _files(folder: Path) -> list[Path]:
    return sorted(entry for entry in folder.iterdir() if entry.is_file() and not entry.name.startswith("."))


def _by_key(path: Path) -> Lines:
    lines: Lines = {}
    for number, line in numbered_lines(path):
        key, *words = written_words(line)
        if key in lines:
            raise InputError(f"{path}, line {number}: {key} is there twice, first in line {lines[key][0]}")
        lines[key] = number, " ".join(words)
    return lines


def _are_scores(path: Path, lines: Lines) -> bool:
    numbers = [text for _, text in lines.values() if re.fullmatch(_NUMBER, text) or _TENSOR.match(text)]
    if path.name.startswith(_COSTS) or 2 * len(numbers) < len(lines):
        return path.name.startswith(_COSTS)
    if whole := all(text.isdecimal() for text in numbers):
        _LOG.info("note: %s: whole numbers, as of words, are no scores; it is not read", path)
    return not whole


def _keyed(key: str, words: str, tables: dict[str, tuple[Path, Lines]]) -> Hypothesis:
    scores = {}
    for name, (path, lines) in tables.items():
        if key not in lines:
            raise InputError(f"{path}: has no score of {key}")
        number, text = lines[key]
        tensor = _TENSOR.match(text)
        score = _number(f"{path}, line {number}", tensor["value"] if tensor else text, "score")
        scores[name] = -score if name.startswith(_COSTS) else score
    return Hypothesis(words, scores)


def _read_srilm(path: Path, lists: _Lists) -> None:
    for file in sorted(_files(path) if path.is_dir() else [path], key=lambda entry: _natural_order(entry.name)):
        rows = list(numbered_lines(file))
        header = rows[0][1].strip() if rows else ""
        if header.startswith("NBestList") and header != "NBestList1.0":
            raise InputError(f"{file}: {header} is not read; make NBestList1.0 of it (SRILM's nbest2-to-nbest1)")
        read = _decipher_line if header == "NBestList1.0" else _srilm_line
        rows = rows[header == "NBestList1.0" :]
        name = _SRILM_SUFFIX.sub("", file.name, count=1)
        if name in lists:
            raise InputError(f"{file}: there is another file of {name}. Leave one of them.")
        # an empty file with another suffix is not a list
        if rows or "." not in file.name or _SRILM_SUFFIX.search(file.name):
            lists[name] = []
        for number, line in rows:
            lists.add(name, read, f"{file}, line {number}", line)


def _natural_order(name: str) -> list[tuple[int, str]]:
    # utt2 before utt10
    parts = re.split(r"([0-9]+)", name)
    return [(int(part or 0), "") if place % 2 else (0, part) for place, part in enumerate(parts)]


def _decipher_line(place: str, line: str) -> Hypothesis:
    match = re.match(r"\s*\((?P<score>[^)\s]+)\)(?P<words>.*)", line)
    if match is None:
        raise InputError(f"{place}: {line[:60]!r} is not `(bytelog) w1 w2 …`")
    score = BYTELOG * _number(place, match["score"], "score")
    return Hypothesis(_unmarked(written_words(match["words"])), {TOTAL: score})


def _srilm_line(place: str, line: str) -> Hypothesis:
    parts = written_words(line)
    acoustic, language, count, *words = [*parts, *[""] * max(0, 3 - len(parts))]
    logarithms = {"ascore": _number(place, acoustic, "ascore"), "lscore": _number(place, language, "lscore")}
    if not (count.isascii() and count.isdigit()):
        raise InputError(f"{place}: {line[:60]!r} is not `ascore lscore nwords w1 w2 …`")
    return Hypothesis(_unmarked(words), {name: math.log(10) * value for name, value in logarithms.items()})


def _unmarked(words: list[str]) -> str:
    """Strip the marks that `lattice-tool` writes around a hypothesis."""
    return " ".join(words[words[:1] == ["<s>"] : len(words) - (words[-1:] == ["</s>"])])


def _read_espnet(path: Path, lists: _Lists) -> None:
    folders = sorted(
        (int(named["rank"]), entry) for entry in path.iterdir() if (named := _ESPNET_FOLDER.match(entry.name))
    )
    if not folders:
        raise InputError(f"{path}: a folder of ESPnet's must hold 1best_recog")
    for _, folder in folders:
        tables = {TOTAL: (folder / "score", _by_key(folder / "score"))}
        for name, (_, text) in _by_key(folder / "text").items():
            lists.add(name, _keyed, name, text, tables)


def _read_nemo(path: Path, lists: _Lists) -> None:
    size = lists.size
    if size is None or size < 1:
        value = "unset" if size is None else size
        raise InputError("list_size", value, f"{path} has no ids; say how many hypotheses each of its lists has")
    lines = list(numbered_lines(path))
    if len(lines) % size:
        raise InputError(f"{path}: {len(lines)} lines are no whole number of lists of {size}")
    for place, (number, line) in enumerate(lines):
        lists.add(str(place // size + 1), _nemo_line, f"{path}, line {number}", line)


def _nemo_line(place: str, line: str) -> Hypothesis:
    text, tab, score = line.rpartition("\t")
    if not tab:
        raise InputError(f"{place}: {line[:60]!r} is not `hypothesis<TAB>score`")
    return Hypothesis(" ".join(written_words(text)), {TOTAL: _number(place, score.strip(), "score")})


def _read_jsonl(path: Path, lists: _Lists) -> None:
    for number, line in numbered_lines(path):
        place = f"{path}, line {number}"
        try:
            record = json_value(line)
            name, hypotheses = str(record["id"]), list(record["hyps"])
        except (ValueError, TypeError, KeyError) as error:
            raise _not_jsonl(place, f" ({error})" * isinstance(error, ValueError)) from None
        if name in lists:
            raise InputError(f"{place}: the id {name} is there twice")
        lists[name] = []
        lists.fields[name] = {k: value for k, value in record.items() if k != "hyps" and (k, value) != ("id", name)}
        for hypothesis in hypotheses:
            lists.add(name, _jsonl_hypothesis, place, hypothesis)


def _not_jsonl(place: str, why: str = "") -> InputError:
    return InputError(f'{place}: is not {{"id": …, "hyps": [{{"text": …, "score": …}}]}}{why}')


def _jsonl_hypothesis(place: str, fields: Any) -> Hypothesis:
    if not isinstance(fields, dict) or not isinstance(text := fields.get("text"), str):
        raise _not_jsonl(place)
    scores, others = dict[str, float](), dict[str, Any]()
    for name, value in fields.items():
        if isinstance(value, int | float) and not isinstance(value, bool):
            scores[name] = _number(place, str(value), f"score {name}")
        elif name.endswith("score") and value is not None:
            raise InputError(f"{place}: the score {name} is {value!r}, not a number")
        elif name != "text":
            others[name] = value
    return Hypothesis(" ".join(written_words(text)), scores, fields=others)


# --- writing ---


def _write_lines(path: Path, lines: Iterable[str]) -> None:
    with replacing_packed(path) as file:
        file.writelines(f"{line}\n".encode() for line in lines)


def _rows(lists: list[NBestList]) -> list[tuple[str, int, Hypothesis]]:
    return [(nbest.id, rank, hypothesis) for nbest in lists for rank, hypothesis in enumerate(nbest.hypotheses, 1)]


def _digits(value: float) -> str:
    return f"{value:.10g}"


def _whole(hypothesis: Hypothesis) -> float:
    return hypothesis.scores.get(TOTAL, sum(hypothesis.scores.values()))


def _write_moses(path: Path, lists: list[NBestList]) -> None:
    def line(name: str, hypothesis: Hypothesis) -> str:
        features, group, values = list[str](), "", 0
        for score, value in hypothesis.scores.items():
            if score != TOTAL:
                again = values > 0 and score == f"{group}.{values + 1}"  # as `_moses_line` names it
                group, values = (group, values + 1) if again else (score, 1)
                # a run's folder may have a space
                features += [*([] if again else [re.sub(r"[\s|=]+", "_", score) + "="]), _digits(value)]
        parts = [name, hypothesis.text, " ".join(features), _digits(_whole(hypothesis)), *hypothesis.more]
        return " ||| ".join(parts)

    _write_lines(path, (line(name, hypothesis) for name, _, hypothesis in _rows(lists)))


def _write_kaldi(path: Path, lists: list[NBestList]) -> None:
    path.mkdir(exist_ok=True)
    _write_lines(path / "words_text", (f"{name}-{n} {h.text}".rstrip() for name, n, h in _rows(lists)))
    for score in lists[0].hypotheses[0].scores:
        sign = -1.0 if score.startswith(_COSTS) else 1.0
        values = ((f"{name}-{n}", _digits(sign * h.scores[score])) for name, n, h in _rows(lists))
        _write_lines(path / score.replace("/", "_"), map(" ".join, values))


def _write_srilm(path: Path, lists: list[NBestList]) -> None:
    def begin(hypothesis: Hypothesis) -> str:
        scores = hypothesis.scores
        if "ascore" not in scores:
            return f"({round(_whole(hypothesis) / BYTELOG)})"
        # SRILM has one language score: the total without the acoustic score, else the lscore that was read
        language = scores[TOTAL] - scores["ascore"] if TOTAL in scores else scores["lscore"]
        logarithms = (_digits(value / math.log(10)) for value in (scores["ascore"], language))
        return " ".join([*logarithms, str(len(hypothesis.words))])

    path.mkdir(exist_ok=True)
    for nbest in lists:
        header = [] if "ascore" in nbest.hypotheses[0].scores else ["NBestList1.0"]
        lines = (f"{begin(hypothesis)} {hypothesis.text}".rstrip() for hypothesis in nbest.hypotheses)
        _write_lines(path / f"{nbest.id}.nbest", [*header, *lines])


def _write_espnet(path: Path, lists: list[NBestList]) -> None:
    for rank in range(1, max(len(nbest.hypotheses) for nbest in lists) + 1):
        folder = path / f"{rank}best_recog"
        folder.mkdir(parents=True, exist_ok=True)
        rows = [(nbest.id, nbest.hypotheses[rank - 1]) for nbest in lists if len(nbest.hypotheses) >= rank]
        _write_lines(folder / "text", (f"{name} {hypothesis.text}".rstrip() for name, hypothesis in rows))
        _write_lines(folder / "score", (f"{name} {_digits(_whole(hypothesis))}" for name, hypothesis in rows))


def _write_nemo(path: Path, lists: list[NBestList]) -> None:
    _write_lines(path, (f"{hypothesis.text}\t{_digits(_whole(hypothesis))}" for _, _, hypothesis in _rows(lists)))


def _write_jsonl(path: Path, lists: list[NBestList]) -> None:
    def record(nbest: NBestList) -> str:
        hypotheses = [{"text": h.text, **h.fields, **h.scores} for h in nbest.hypotheses]
        return json.dumps({"id": nbest.id, **nbest.fields, "hyps": hypotheses}, ensure_ascii=False)

    _write_lines(path, map(record, lists))


_FORMATS: dict[Format, tuple[Callable[[Path, _Lists], None], Callable[[Path, list[NBestList]], None]]] = {
    "moses": (_read_moses, _write_moses),
    "kaldi": (_read_kaldi, _write_kaldi),
    "srilm": (_read_srilm, _write_srilm),
    "espnet": (_read_espnet, _write_espnet),
    "nemo": (_read_nemo, _write_nemo),
    "jsonl": (_read_jsonl, _write_jsonl),
}
"""What reads and writes each format."""
