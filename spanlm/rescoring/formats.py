r"""n-best lists in the formats of the tools that make them.

| format | a line of it |
|---|---|
| moses | `ID \|\|\| hypothesis \|\|\| name= value … \|\|\| total`, further fields are kept |
| kaldi | `ID-N w1 w2 …`; in a folder: `words_text` or `text`, beside files of `ID-N score` (acwt, lmwt… are costs) |
| srilm | `ascore lscore nwords w1 w2 …` (log10), or `NBestList1.0` and `(bytelog) w1 w2 …`; a file a list |
| espnet | a folder with `1best_recog/`, `2best_recog/`, …; in each `text` (`ID w1 w2 …`) and `score` (`ID value`) |
| nemo | `hypothesis<TAB>score`, the same number of lines a list (`list_size`); IDs are 1, 2, … |
| jsonl | `{"id": …, "hyps": [{"text": …, "score": …}]}`; numbers beside the text are scores, other fields are kept |

Scores are natural logarithms once they are read: log10 and bytelogs (1 is 1024/10000, as in SRILM) are converted, costs
negated; what Moses, ESPnet, NeMo and JSON lines hold is taken as it is. The order of lists and of hypotheses is kept;
a hypothesis may have no words, and a list of JSON lines or SRILM no hypotheses: it then has one without words. A file
may end in `.gz`.
"""

from __future__ import annotations

import json
import logging
import math
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_args

from spanlm.data.tokenizer import written_words
from spanlm.data.vocabulary import EOS
from spanlm.errors import InputError
from spanlm.store.files import opened, replacing_packed
from spanlm.store.plain import json_value

Format = Literal["moses", "kaldi", "srilm", "espnet", "nemo", "jsonl"]
_LOG = logging.getLogger(__name__)
FOLDERS: tuple[Format, ...] = ("kaldi", "srilm", "espnet")
"""Formats that are written as a folder of files."""
TOTAL = "total"
BYTELOG = 1024 / 10000
"""Nats of one bytelog: a logarithm to base 1.0001, divided by 1024; SRILM takes ln 1.0001 for 1/10000."""

_KALDI_TEXTS = ("words_text", "text")
_KALDI_ID = re.compile(r"(?P<id>\S+)-(?P<rank>\d+)$")
_ESPNET_FOLDER = re.compile(r"(?P<rank>\d+)best_recog$")
_ESPNET_SCORE = re.compile(r"tensor\((?P<value>[^,)]+).*\)$")
_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_SRILM_LINE = re.compile(rf"\s*{_NUMBER}\s+{_NUMBER}\s+\d+(\s|$)")
_NEMO_LINE = re.compile(rf"[^\t]*\t\s*{_NUMBER}\s*")
_OTHERS = {
    ".ctm": "a CTM file has times of one hypothesis",
    ".json": "JSON as of WhisperX has times of one hypothesis",
    ".lat": "a lattice is no n-best list",
    ".slf": "a lattice is no n-best list",
}


@dataclass(frozen=True)
class Hypothesis:
    """One hypothesis of a list.

    Attributes:
        text: its words as written, with one space between them.
        scores: natural logarithms by name, in the order of the file.
        more: fields of Moses' that are written again as they were read.
        fields: likewise of JSON lines, by name.
    """

    text: str
    scores: dict[str, float] = field(default_factory=dict)
    more: tuple[str, ...] = ()
    fields: dict[str, Any] = field(default_factory=dict)

    @property
    def words(self) -> list[str]:
        """Its words as written."""
        return written_words(self.text)


@dataclass(frozen=True)
class NBestList:
    """The hypotheses of one utterance or sentence, best first as its maker thought; `fields` as of a hypothesis."""

    id: str
    hypotheses: tuple[Hypothesis, ...]
    fields: dict[str, Any] = field(default_factory=dict)


def read_nbest(
    path: Path, format: Format | None = None, list_size: int | None = None
) -> tuple[list[NBestList], Format]:
    """Read lists, and say which format they have.

    Args:
        path: a file, or a folder of `kaldi`, `srilm` or `espnet`.
        format: of it; None: found out from its name and its first line.
        list_size: hypotheses a list, which `nemo` does not say.

    Raises:
        InputError: no such format, or a line that is not of it, an id that comes again, hypotheses with different
            scores or the reserved word <eos>, or a score that is no finite number; names the file and the place.
    """
    if not path.exists():
        raise InputError(f"{path}: no such file; name a file or a folder of n-best lists")
    format = format or find_format(path)
    if format not in get_args(Format):
        raise InputError(f"format={format}: must be one of {', '.join(get_args(Format))}")
    lists = _read_nemo(path, list_size) if format == "nemo" else _READERS[format](path)
    first = next((each for found in lists for each in found.hypotheses), None)
    if first is None:
        raise InputError(f"{path}: holds no hypotheses")
    _check(path, lists, first)
    if empty := [found.id for found in lists if not found.hypotheses]:
        _LOG.info("note: %s: no hypotheses of %s; each such list counts as one without words", path, _some(empty))
    nothing = (Hypothesis("", dict.fromkeys(first.scores, 0.0)),)
    return [found if found.hypotheses else replace(found, hypotheses=nothing) for found in lists], format


def find_format(path: Path) -> Format:
    """Return the format that a file or a folder has by its name and its first line.

    Raises:
        InputError: it has none of them.
    """
    if path.is_dir():
        names = {entry.name for entry in path.iterdir()}
        if "1best_recog" in names:
            return "espnet"
        return "kaldi" if names & set(_KALDI_TEXTS) else "srilm"
    if why := _OTHERS.get(path.suffix):
        raise InputError(f"{path}: {why}. n-best lists are read as {', '.join(get_args(Format))}.")
    line = next((line for _, line in _lines(path)), "")
    if path.name.removesuffix(".gz").endswith(".jsonl") or line.startswith("{"):
        return "jsonl"
    if "|||" in line:
        return "moses"
    if _NEMO_LINE.fullmatch(line):
        return "nemo"
    if line.startswith("NBestList") or _SRILM_LINE.match(line):
        return "srilm"
    if _KALDI_ID.match(line.split(maxsplit=1)[0] if line.strip() else ""):
        return "kaldi"
    raise InputError(f"{path}: no known n-best list begins so; say which by --format: {', '.join(get_args(Format))}")


def write_nbest(path: Path, format: Format, lists: Iterable[NBestList]) -> None:
    """Write lists, their hypotheses in the given order; a folder of `kaldi`, `srilm` and `espnet` is made.

    Every score is written that the format has a place for; `total` is the one for the whole of a hypothesis.
    """
    _WRITERS[format](path, list(lists))


def read_references(path: Path, lists: list[NBestList]) -> list[list[str]]:
    """Read what was said or meant: a line a list, `ID w1 w2 …`, `w1 w2 … (ID)`, or the words alone in the lists' order.

    Raises:
        InputError: a list without reference, or an id twice, or another number of lines than of lists.
    """
    ids = [found.id for found in lists]
    lines, known = [line for _, line in _lines(path, blank=True)], set(ids)
    by_id = _with_ids(path, lines, known)
    if by_id is None:
        if len(lines) != len(ids):
            raise InputError(
                f"{path}: {len(lines)} lines for {len(ids)} lists, and they do not begin with the lists' ids, as "
                f"{ids[0]}. Give a line a list."
            )
        if found := _other_ids(lines, ids):
            line, name = found
            raise InputError(
                f"{path}: its lines have ids, such as {line}, and these are not the lists', such as {name}. Give them "
                "the lists' ids, or take them out where the lines are in the lists' order."
            )
        return [written_words(line) for line in lines]
    if missing := [name for name in ids if name not in by_id]:
        raise InputError(f"{path}: has no reference of {_some(missing)}, of {len(ids)} lists. Add them.")
    if without := [name for name in by_id if name not in known]:
        _LOG.info("note: %s: no list of %s, whose words are not counted", path, _some(without))
    return [by_id[name] for name in ids]


def _other_ids(lines: list[str], ids: list[str]) -> tuple[str, str] | None:
    """Return an id that a line has, and the list's, if all lines have ids that are nearly those of the lists."""
    found = None
    for line, name in zip(lines, ids, strict=True):
        words = written_words(line)
        inside = re.fullmatch(r"\((\S+)\)", words[-1]) if words else None
        written = inside[1] if inside else words[0] if words else ""
        other, own = written.casefold(), name.casefold()
        # where ids are numbers, or next to nothing, a line that begins with a number says nothing
        telling = len(other) > 1 and re.search(r"\d", other) and re.search(r"[^\W\d]", own)
        near = telling and (other in own or own in other)
        if not near:
            return None
        found = found or (written, name)
    return found


def _some(names: list[str]) -> str:
    return names[0] + (f" and {len(names) - 1:,} more" if len(names) > 1 else "")


def _with_ids(path: Path, lines: list[str], ids: set[str]) -> dict[str, list[str]] | None:
    """Return words by id if some line names one of `ids`, as its first word or in parentheses as its last."""
    found: dict[str, list[str]] = {}
    for number, line in enumerate(lines, 1):
        words = written_words(line)
        trailing = re.fullmatch(r"\((.+)\)", words[-1]) if words else None
        if trailing and trailing[1] in ids:
            name, words = trailing[1], words[:-1]
        elif words:
            name, words = words[0], words[1:]
        else:
            continue
        if name in found and name in ids:
            raise InputError(f"{path}, line {number}: {name} has a reference already")
        found[name] = words
    # numbers as ids: a line that begins with a number by chance does not make the file one with ids
    return found if len(ids & found.keys()) * 2 >= min(len(ids), len(lines)) else None


# --- reading ---


def _lines(path: Path, *, blank: bool = False) -> Iterator[tuple[int, str]]:
    """Yield the lines of a file with their numbers, from 1; those with nothing but white space where `blank`."""
    try:
        with opened(path) as file:
            for number, raw in enumerate(file, 1):
                line = raw.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
                if blank or line.strip():
                    yield number, line
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 ({error.reason}); convert it, as by iconv") from None


def _number(path: Path, line: int, text: str, what: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not abs(value) <= 1e100:  # sums and squares of larger ones overflow
        raise InputError(f"{path}, line {line}: the {what} {text!r} is not a finite number of at most 1e100")
    return value


def _grouped(path: Path, found: Iterable[tuple[int, str, Hypothesis]]) -> list[NBestList]:
    """Make lists of hypotheses that follow each other with one id; refuse an id that comes again later."""
    lists: dict[str, list[Hypothesis]] = {}
    last = None
    for line, name, hypothesis in found:
        if name != last and name in lists:
            raise InputError(f"{path}, line {line}: the id {name} comes again after another; lists must be whole")
        lists.setdefault(name, []).append(hypothesis)
        last = name
    return [NBestList(name, tuple(hypotheses)) for name, hypotheses in lists.items()]


def _check(path: Path, lists: list[NBestList], first: Hypothesis) -> None:
    """Refuse hypotheses that have other scores than the first of all, or the reserved word."""
    for found in lists:
        for rank, hypothesis in enumerate(found.hypotheses, 1):
            place = f"{path}: hypothesis {rank} of {found.id}"
            if hypothesis.scores.keys() != first.scores.keys():
                raise InputError(
                    f"{place} has the scores {', '.join(hypothesis.scores) or 'none'}; "
                    f"the first of all has {', '.join(first.scores) or 'none'}. All must have the same."
                )
            if EOS in hypothesis.text.split():
                raise InputError(f"{place} has the word {EOS}, which is reserved for the end of a line. Delete it.")


def _read_moses(path: Path) -> list[NBestList]:
    return _grouped(path, ((number, *_moses_line(path, number, line)) for number, line in _lines(path)))


def _moses_line(path: Path, number: int, line: str) -> tuple[str, Hypothesis]:
    name, *parts = (part.strip() for part in line.split("|||"))
    if len(parts) < 3 or not name:
        raise InputError(f"{path}, line {number}: {line[:60]!r} is not `ID ||| hypothesis ||| name= value ||| total`")
    text, features, total, *more = parts
    scores: dict[str, float] = {}
    group, values = "score", 0
    for item in features.split():
        if item.endswith(("=", ":")):
            group, values = item[:-1], 0
        else:
            values += 1
            scores[group if values == 1 else f"{group}.{values}"] = _number(path, number, item, f"feature {group}")
    scores[TOTAL] = _number(path, number, total, "total")
    return name, Hypothesis(" ".join(written_words(text)), scores, tuple(more))


def _read_kaldi(path: Path) -> list[NBestList]:
    if not path.is_dir():
        return _kaldi_lists(path, {})
    text = next((path / name for name in _KALDI_TEXTS if (path / name).is_file()), None)
    if text is None:
        raise InputError(f"{path}: a folder of Kaldi's must hold {' or '.join(_KALDI_TEXTS)}")
    others = (entry for entry in sorted(path.iterdir()) if entry.is_file() and entry != text)
    tables = {entry.name: table for entry in others if (table := _kaldi_scores(entry)) is not None}
    return _kaldi_lists(text, tables)


def _kaldi_scores(path: Path) -> dict[str, float] | None:
    """Return a score by key, costs negated; None: the file is not `KEY NUMBER` on every line."""
    sign = -1.0 if path.name.startswith(("acwt", "lmwt")) else 1.0
    found = {}
    for number, line in _lines(path):
        parts = line.split()
        if len(parts) != 2 or not _KALDI_ID.match(parts[0]):
            return None
        found[parts[0]] = sign * _number(path, number, parts[1], "score")
    return found


def _kaldi_lists(path: Path, tables: dict[str, dict[str, float]]) -> list[NBestList]:
    ranks: dict[str, list[int]] = {}

    def hypotheses() -> Iterator[tuple[int, str, Hypothesis]]:
        seen: set[str] = set()
        for number, line in _lines(path):
            key, *words = written_words(line)
            named = _KALDI_ID.match(key)
            if named is None:
                raise InputError(f"{path}, line {number}: {key!r} is not an id with a hypothesis' number, as utt-1")
            if key in seen:
                raise InputError(f"{path}, line {number}: {key} is there twice")
            seen.add(key)
            for name, table in tables.items():
                if key not in table:
                    raise InputError(f"{path.parent / name}: has no score of {key}")
            scores = {name: table[key] for name, table in tables.items()}
            ranks.setdefault(named["id"], []).append(int(named["rank"]))
            yield number, named["id"], Hypothesis(" ".join(words), scores)

    # the file is sorted by its keys, utt-10 before utt-2
    lists = []
    for found in _grouped(path, hypotheses()):
        by_rank = sorted(zip(ranks[found.id], found.hypotheses, strict=True), key=lambda pair: pair[0])
        lists.append(replace(found, hypotheses=tuple(hypothesis for _, hypothesis in by_rank)))
    return lists


def _read_srilm(path: Path) -> list[NBestList]:
    entries = (entry for entry in path.iterdir() if entry.is_file()) if path.is_dir() else [path]
    files = sorted(entries, key=lambda entry: _in_numbers(entry.name))
    lists = [NBestList(file.name.removesuffix(".gz").removesuffix(".nbest"), _srilm_file(file)) for file in files]
    # an empty file that is called otherwise is none of them
    called = [".nbest" in file.name or "." not in file.name for file in files]
    return [found for found, own in zip(lists, called, strict=True) if own or found.hypotheses]


def _in_numbers(name: str) -> list[tuple[int, str]]:
    """Order names as people do: utt2 before utt10."""
    parts = re.split(r"([0-9]+)", name)
    return [(int(part or 0), "") if place % 2 else (0, part) for place, part in enumerate(parts)]


def _srilm_file(path: Path) -> tuple[Hypothesis, ...]:
    lines = list(_lines(path))
    header = lines[0][1].strip() if lines else ""
    if header.startswith("NBestList") and header != "NBestList1.0":
        raise InputError(f"{path}: {header} is not read; make NBestList1.0 of it (SRILM's nbest2-to-nbest1)")
    if header:
        line = _decipher_line if header == "NBestList1.0" else _srilm_line
        return tuple(line(path, number, text) for number, text in lines[header == "NBestList1.0" :])
    return ()


def _decipher_line(path: Path, number: int, line: str) -> Hypothesis:
    found = re.match(r"\s*\((?P<score>[^)\s]+)\)(?P<words>.*)", line)
    if found is None:
        raise InputError(f"{path}, line {number}: {line[:60]!r} is not `(bytelog) w1 w2 …`")
    score = BYTELOG * _number(path, number, found["score"], "score")
    return Hypothesis(_unmarked(written_words(found["words"])), {TOTAL: score})


def _srilm_line(path: Path, number: int, line: str) -> Hypothesis:
    parts = written_words(line)
    acoustic, language, count, *words = [*parts, *[""] * max(0, 3 - len(parts))]
    scores = {
        name: math.log(10) * _number(path, number, text, name)
        for name, text in (("ascore", acoustic), ("lscore", language))
    }
    if not count.isdigit():
        raise InputError(f"{path}, line {number}: {line[:60]!r} is not `ascore lscore nwords w1 w2 …`")
    return Hypothesis(_unmarked(words), scores)


def _unmarked(words: list[str]) -> str:
    """Leave out the marks that `lattice-tool` writes around a hypothesis."""
    return " ".join(words[words[:1] == ["<s>"] : len(words) - (words[-1:] == ["</s>"])])


def _read_espnet(path: Path) -> list[NBestList]:
    folders = sorted(
        (int(named["rank"]), entry) for entry in path.iterdir() if (named := _ESPNET_FOLDER.match(entry.name))
    )
    if not folders:
        raise InputError(f"{path}: a folder of ESPnet's must hold 1best_recog")
    lists: dict[str, list[Hypothesis]] = {}
    for rank, folder in folders:
        scores = {}
        for number, line in _lines(folder / "score"):
            name, _, text = line.partition(" ")
            tensor = _ESPNET_SCORE.match(text.strip())
            scores[name] = _number(folder / "score", number, tensor["value"] if tensor else text.strip(), "score")
        for number, line in _lines(folder / "text"):
            name, *words = written_words(line)
            if name not in scores:
                raise InputError(f"{folder / 'score'}: has no score of {name}, which line {number} of text has")
            if len(lists.setdefault(name, [])) >= rank:
                raise InputError(f"{folder / 'text'}, line {number}: {name} is there twice")
            lists[name].append(Hypothesis(" ".join(words), {TOTAL: scores[name]}))
    return [NBestList(name, tuple(hypotheses)) for name, hypotheses in lists.items()]


def _read_nemo(path: Path, list_size: int | None) -> list[NBestList]:
    if list_size is None or list_size < 1:
        given = "unset" if list_size is None else list_size
        raise InputError(f"list_size={given}: {path} has no ids; say how many hypotheses each of its lists has")
    found = []
    for number, line in _lines(path):
        text, tab, score = line.rpartition("\t")
        if not tab:
            raise InputError(f"{path}, line {number}: {line[:60]!r} is not `hypothesis<TAB>score`")
        found.append(Hypothesis(" ".join(written_words(text)), {TOTAL: _number(path, number, score.strip(), "score")}))
    if len(found) % list_size:
        raise InputError(f"{path}: {len(found)} lines are no whole number of lists of {list_size}")
    starts = range(0, len(found), list_size)
    return [NBestList(str(n), tuple(found[start : start + list_size])) for n, start in enumerate(starts, 1)]


def _read_jsonl(path: Path) -> list[NBestList]:
    lists: dict[str, NBestList] = {}
    for number, line in _lines(path):
        try:
            record = json_value(line)
            name, hypotheses = str(record["id"]), [dict(each) for each in record["hyps"]]
            texts = [str(each.pop("text")) for each in hypotheses]
        except (ValueError, TypeError, KeyError) as error:
            why = f" ({error})" if isinstance(error, ValueError) and "sequence element" not in str(error) else ""
            raise InputError(
                f'{path}, line {number}: is not {{"id": …, "hyps": [{{"text": …, "score": …}}]}}{why}'
            ) from None
        if name in lists:
            raise InputError(f"{path}, line {number}: the id {name} is there twice")
        those = (_jsonl_hypothesis(path, number, *each) for each in zip(texts, hypotheses, strict=True))
        others = {key: value for key, value in record.items() if key != "hyps" and (key, value) != ("id", name)}
        lists[name] = NBestList(name, tuple(those), others)
    return list(lists.values())


def _jsonl_hypothesis(path: Path, number: int, text: str, fields: dict[str, object]) -> Hypothesis:
    scores, others = dict[str, float](), dict[str, Any]()
    for name, value in fields.items():
        if isinstance(value, int | float) and not isinstance(value, bool):
            scores[name] = _number(path, number, str(value), f"score {name}")
        elif name.endswith("score") and value is not None:
            raise InputError(f"{path}, line {number}: the score {name} is {value!r}, not a number")
        else:
            others[name] = value
    return Hypothesis(" ".join(written_words(text)), scores, fields=others)


_READERS: dict[str, Callable[[Path], list[NBestList]]] = {
    "moses": _read_moses,
    "kaldi": _read_kaldi,
    "srilm": _read_srilm,
    "espnet": _read_espnet,
    "jsonl": _read_jsonl,
}


# --- writing ---


def _write_lines(path: Path, lines: Iterable[str]) -> None:
    with replacing_packed(path) as file:
        file.writelines(f"{line}\n".encode() for line in lines)


def _each(lists: list[NBestList]) -> Iterator[tuple[str, int, Hypothesis]]:
    """Yield (id, rank from 1, hypothesis)."""
    for found in lists:
        for rank, hypothesis in enumerate(found.hypotheses, 1):
            yield found.id, rank, hypothesis


def _digits(value: float) -> str:
    return f"{value:.10g}"


def _whole(hypothesis: Hypothesis) -> float:
    """The score for the whole of a hypothesis: its total, or the sum of what it has."""
    return hypothesis.scores.get(TOTAL, sum(hypothesis.scores.values()))


def _write_moses(path: Path, lists: list[NBestList]) -> None:
    def line(name: str, hypothesis: Hypothesis) -> str:
        features, group, values = list[str](), "", 0
        for score, value in hypothesis.scores.items():
            if score != TOTAL:
                again = values > 0 and score == f"{group}.{values + 1}"  # as `_moses_line` names it
                group, values = (group, values + 1) if again else (score, 1)
                features += [_digits(value)] if again else [f"{score}=", _digits(value)]
        parts = [name, hypothesis.text, " ".join(features), _digits(_whole(hypothesis)), *hypothesis.more]
        return " ||| ".join(parts)

    _write_lines(path, (line(name, hypothesis) for name, _, hypothesis in _each(lists)))


def _write_kaldi(path: Path, lists: list[NBestList]) -> None:
    path.mkdir(exist_ok=True)
    _write_lines(path / "words_text", (f"{name}-{n} {each.text}".rstrip() for name, n, each in _each(lists)))
    for score in lists[0].hypotheses[0].scores:
        sign = -1.0 if score.startswith(("acwt", "lmwt")) else 1.0
        values = ((f"{name}-{n}", _digits(sign * each.scores[score])) for name, n, each in _each(lists))
        _write_lines(path / score.replace("/", "_"), map(" ".join, values))


def _write_srilm(path: Path, lists: list[NBestList]) -> None:
    path.mkdir(exist_ok=True)
    for found in lists:
        if "ascore" in found.hypotheses[0].scores:
            lines = [
                f"{_digits(each.scores['ascore'] / math.log(10))} {_digits(_language(each) / math.log(10))} "
                f"{len(each.words)} {each.text}".rstrip()
                for each in found.hypotheses
            ]
        else:
            whole = ((round(_whole(each) / BYTELOG), each.text) for each in found.hypotheses)
            lines = ["NBestList1.0", *(f"({score}) {text}".rstrip() for score, text in whole)]
        _write_lines(path / f"{found.id}.nbest", lines)


def _language(hypothesis: Hypothesis) -> float:
    """Return SRILM's one score of language: what the total has beyond the acoustic score, or the one that was read."""
    scores = hypothesis.scores
    return scores[TOTAL] - scores["ascore"] if TOTAL in scores else scores["lscore"]


def _write_espnet(path: Path, lists: list[NBestList]) -> None:
    for rank in range(1, max(len(found.hypotheses) for found in lists) + 1):
        folder = path / f"{rank}best_recog"
        folder.mkdir(parents=True, exist_ok=True)
        those = [(found.id, found.hypotheses[rank - 1]) for found in lists if len(found.hypotheses) >= rank]
        _write_lines(folder / "text", (f"{name} {each.text}".rstrip() for name, each in those))
        _write_lines(folder / "score", (f"{name} {_digits(_whole(each))}" for name, each in those))


def _write_nemo(path: Path, lists: list[NBestList]) -> None:
    _write_lines(path, (f"{each.text}\t{_digits(_whole(each))}" for _, _, each in _each(lists)))


def _write_jsonl(path: Path, lists: list[NBestList]) -> None:
    def record(found: NBestList) -> str:
        hypotheses = [{"text": each.text, **each.fields, **each.scores} for each in found.hypotheses]
        return json.dumps({"id": found.id, **found.fields, "hyps": hypotheses}, ensure_ascii=False)

    _write_lines(path, map(record, lists))


_WRITERS: dict[str, Callable[[Path, list[NBestList]], None]] = {
    "moses": _write_moses,
    "kaldi": _write_kaldi,
    "srilm": _write_srilm,
    "espnet": _write_espnet,
    "nemo": _write_nemo,
    "jsonl": _write_jsonl,
}
