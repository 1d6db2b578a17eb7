"""Read reference transcripts and translations, and align hypotheses with them.

| format | what is read |
|---|---|
| text | a line a list: `ID w1 w2 …`, or the words alone in the lists' order |
| trn | `w1 w2 … (ID)`; `{ a / b c / @ }` are alternatives, @ is no word |
| stm | `ID channel speaker begin end [<label>] w1 w2 …`; the segments of an ID are joined, `;;` begins a comment |
| JSON | lines, or one array, of `{"audio_filepath": "…/ID.wav", "text": …}`, or with `id`, `utt`, `utt_id` or `key` |

Each hypothesis is compared with the alternatives that give it the fewest errors, as in NIST's sclite.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterator, Sequence
from itertools import starmap
from operator import itemgetter
from pathlib import Path, PurePath
from typing import Any, NamedTuple

from spanlm.data.formats import FIRST_BYTES, known_format
from spanlm.data.packed import opened
from spanlm.data.tokenizer import written_words
from spanlm.errors import InputError
from spanlm.rescoring.formats import NBestList, numbered_lines, some
from spanlm.store.files import is_pipe
from spanlm.store.plain import json_value

Reference = list["str | list[Reference]"]
"""Words and lists of alternatives."""

_Cell = tuple[int, Any]
"""Errors, and the reference words read so far as a linked list: () or (earlier words, last word)."""
_LOG = logging.getLogger(__name__)
_LABEL = r"<(?!unk>)[^<>\s]+>"
_STM = re.compile(rf"(\S+)\s+(\S+)\s+\S+\s+([0-9]+\.?[0-9]*)\s+[0-9]+\.?[0-9]*(?:\s+(?:{_LABEL}))?(?:\s+(.*))?")
_TIMES = re.compile(r"(\S+\s+){3}[0-9]+\.[0-9]+\s+[0-9]+\.[0-9]+(\s|$)")
_TRN = re.compile(r"(.*?)\s*\(([^()\s]+)\)")
_IDS = ("id", "utt", "utt_id", "key")
_IGNORED = "ignore_time_segment_in_scoring"


class _Line(NamedTuple):
    """A line, the ids that its list may have, and its time among the segments of one id."""

    place: str
    ids: list[str]
    text: str
    time: tuple[str, float] = ("", 0.0)


def read_references(path: Path, lists: Sequence[NBestList], leave_out: Collection[str] = ()) -> list[Reference | None]:
    """Read the reference of every list, without the words to `leave_out`; None: the list is not scored.

    Raises:
        InputError: the format is unknown, a list has no reference, an id is repeated, ids match no list, or lines
            without ids are more or fewer than the lists.
    """
    names = [nbest.id for nbest in lists]
    known = set(names)
    # if lists have only numbers, references with other ids are taken in the lists' order
    numbered = all(name.isdecimal() for name in names)
    kind, lines = _read(path, numbered)
    by_id: dict[str, list[_Line]] = {}
    repeated = list[str]()
    for line in lines:
        name = next((name for name in line.ids if name in known), line.ids[0])
        if name in by_id and name in known and kind != "stm":
            repeated.append(f"{line.place}: {name}")
        by_id.setdefault(name, []).append(line)
    # a few lines that begin with a list's number by chance do not give the file ids
    if kind == "text" and len(known & by_id.keys()) * 2 < max(1, min(len(names), len(lines))):
        by_id = _in_order(path, names)
    elif by_id and known.isdisjoint(by_id):
        if not numbered or len(by_id) != len(names):
            raise _other_ids(path, next(iter(by_id), ""), names[0])
        by_id = dict(zip(names, by_id.values(), strict=True))
    elif repeated:
        raise InputError(f"{repeated[0]} has a reference already")
    if missing := [name for name in names if name not in by_id]:
        raise InputError(f"{path}: has no reference of {some(missing)}, of {len(names)} lists. Add them.")
    if without := [name for name in by_id if name not in known]:
        _LOG.info("note: %s: no list of %s, whose words are not counted", path, some(without))
    return [_reference(by_id[name], kind, leave_out) for name in names]


def _read(path: Path, numbered: bool) -> tuple[str, list[_Line]]:
    """Return the kind, `json`, `stm`, `trn`, `ids` (an id before the words of each line) or `text`, and the lines."""
    if is_pipe(path):
        raise InputError(f"{path}: is a pipe, and references are read more than once; write them to a file")
    with opened(path) as file:
        form = known_format(path, file.read(FIRST_BYTES))
    lines = [(f"{path}, line {number}", line) for number, line in numbered_lines(path)]
    if form is not None and form.name == "JSON":
        return "json", list(_json_lines(path, lines, numbered))
    spoken = [(place, line) for place, line in lines if not line.startswith(";;")]
    name = path.name.removesuffix(".gz").removesuffix(".bz2")
    if name.endswith(".stm") or (spoken and all(_TIMES.match(line) for _, line in spoken)):
        return "stm", list(starmap(_stm_line, spoken))
    if name.endswith(".trn") or (spoken and all(_TRN.fullmatch(line.strip()) for _, line in spoken)):
        return "trn", list(starmap(_trn_line, spoken))
    ids = form is not None and form.name.startswith("Kaldi")
    if form is not None and not ids and not all(line.count("\t") == 1 for _, line in lines):
        raise InputError(f"{path}: {form.name}, no references: give text, .trn, .stm, or a manifest of JSON lines")
    words = [(place, written_words(line) or [""]) for place, line in lines]
    return "ids" if ids else "text", [_Line(place, [first], " ".join(rest)) for place, (first, *rest) in words]


def _in_order(path: Path, names: list[str]) -> dict[str, list[_Line]]:
    lines = [line for _, line in numbered_lines(path, blank=True)]
    while len(lines) > len(names) and not lines[-1].strip():
        lines.pop()
    if len(lines) != len(names):
        raise InputError(
            f"{path}: {len(lines)} lines for {len(names)} lists, and they do not begin with the lists' ids, as "
            f"{names[0]}. Give a line a list."
        )

    def nearly_named(line: str, name: str) -> bool:
        first, listed = (written_words(line) or [""])[0].casefold(), name.casefold()
        # if the lists' ids are mere numbers, a line that begins with a number proves nothing
        telling = len(first) > 1 and re.search(r"\d", first) and re.search(r"[^\W\d]", listed)
        return bool(telling) and (first in listed or listed in first)

    if all(map(nearly_named, lines, names)):
        raise _other_ids(path, written_words(lines[0])[0], names[0])
    return {name: [_Line(str(path), [name], line)] for name, line in zip(names, lines, strict=True)}


def _other_ids(path: Path, written: str, name: str) -> InputError:
    return InputError(
        f"{path}: its lines have ids, such as {written}, and these are not the lists', such as {name}. Give them the "
        "lists' ids, or take them out where the lines are in the lists' order."
    )


def _matched(place: str, line: str, pattern: re.Pattern[str], shape: str) -> tuple[str, ...]:
    if match := pattern.fullmatch(line.strip()):
        return match.groups("")
    raise InputError(f"{place}: {line[:60]!r} is not `{shape}`")


def _stm_line(place: str, line: str) -> _Line:
    file, channel, begin, text = _matched(place, line, _STM, "ID channel speaker begin end [<label>] w1 w2 …")
    return _Line(place, [file, f"{file}-{channel}", f"{file}_{channel}"], text, (channel, float(begin)))


def _trn_line(place: str, line: str) -> _Line:
    text, name = _matched(place, line, _TRN, "w1 w2 … (ID)")
    return _Line(place, [name], text)


def _json_lines(path: Path, lines: list[tuple[str, str]], numbered: bool) -> Iterator[_Line]:
    if lines and lines[0][1].lstrip().startswith("["):
        lines = [(str(path), "".join(line for _, line in lines))]
    for place, line in lines:
        try:
            value = json_value(line)
            for record in value if isinstance(value, list) else [value]:
                text, audio = record["text"], str(record.get("audio_filepath") or "")
                ids = [str(record[name]) for name in _IDS if name in record]
                # a number in a file's name is not the number of a list
                ids += [audio] if numbered else [audio, PurePath(audio).name, PurePath(audio).stem]
                if not isinstance(text, str) or not any(ids):
                    raise ValueError("has no text, or no id")
                yield _Line(place, ids, text)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise InputError(f'{place}: is not {{"audio_filepath": …, "text": …}} or {{"id": …}} ({error})') from None


def _reference(segments: list[_Line], kind: str, leave_out: Collection[str]) -> Reference | None:
    if kind == "stm":
        segments = sorted((line for line in segments if line.text.lower() != _IGNORED), key=lambda line: line.time)
    read: Reference = []
    for line in segments:
        nist = kind in ("stm", "trn")
        text = re.sub(r"\{([^{}]*\s/\s[^{}]*)\}", r" { \1 } ", line.text) if nist else line.text
        words = [word for word in written_words(text) if word not in leave_out]
        read += _alternatives(line.place, words) if nist else words
    return read if segments else None


def _alternatives(place: str, words: Sequence[str]) -> Reference:
    # a stack: the line, then the alternatives of each open {
    levels: list[list[Reference]] = [[[]]]
    for word in words:
        if word == "{":
            levels.append([[]])
        elif word == "}" and len(levels) > 1:
            closed = levels.pop()
            levels[-1][-1].append(closed)
        elif word == "/" and len(levels) > 1:
            levels[-1].append([])
        elif word != "@" or len(levels) == 1:
            levels[-1][-1].append(word)
    if len(levels) > 1:
        raise InputError(f"{place}: a {{ is not closed; alternatives are {{ a / b / @ }}")
    return levels[0][0]


def aligned(hypothesis: list[str], reference: Reference | None) -> tuple[list[str], list[str]]:
    """Return the words of a hypothesis, and of the reference with the alternatives that give the fewest errors.

    The first of equally good alternatives is taken. Both are empty if the reference is None (not scored).
    """
    if reference is None:
        return [], []
    words = [item for item in reference if isinstance(item, str)]
    if len(words) == len(reference):
        return hypothesis, words
    path = _read_against(hypothesis, reference, [(n, ()) for n in range(len(hypothesis) + 1)])[-1][1]
    words = []
    while path:
        path, word = path
        words.append(word)
    return hypothesis, words[::-1]


def _read_against(hypothesis: list[str], reference: Reference, row: list[_Cell]) -> list[_Cell]:
    """Advance the edit-distance row over `reference`; cell n has the fewest errors of n words and their path."""
    for item in reference:
        if isinstance(item, str):
            before, row = row, [(row[0][0] + 1, (row[0][1], item))]
            for place, word in enumerate(hypothesis):
                (substituted, path), (deleted, other) = before[place], before[place + 1]
                inserted, last = row[-1]
                same = (substituted + (word != item), (path, item))
                row.append(min(same, (deleted + 1, (other, item)), (inserted + 1, last), key=itemgetter(0)))
        else:
            rows = [_read_against(hypothesis, alternative, row) for alternative in item]
            row = [min(cells, key=itemgetter(0)) for cells in zip(*rows, strict=True)]
    return row
