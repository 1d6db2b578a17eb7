"""Published tables of reading times, a row a word and reader: their columns, and repairs of their traps.

A layout sets what options of a verb set: which columns hold the word (`text`), the text that it stands in (`line`), its
place there (`order`), the reader and the time; and the `REPAIRS` to make.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Protocol, TypeVar

from spanlm.data.tables import RowNotes
from spanlm.errors import InputError

REPAIRS = {
    "encoding": "bytes that are not UTF-8 are read as CP1252; UTF-8 read as CP1252 (donâ€™t) is set right; a lost "
    "character between two letters is an apostrophe",
    "logicals": "TRUE and FALSE, as spreadsheets write them, are the words true and false",
    "marks": "a row of punctuation alone, or of an ending such as n't, is read with the word beside it",
    "readings": "rows of a line with one place (--order) are one word that several readers read, or one several times: "
    "it is scored once, in the spelling that most rows have",
}
"""What each repair does, by name."""


@dataclass(frozen=True)
class Layout:
    """Columns of a table, as options name them; of alternatives, `a|b`, a table has the first that it has."""

    source: str
    text: str
    line: str
    order: str
    subject: str
    response: str
    repair: str
    item: str = ""  # columns of `line` that name what other texts share words with, as two versions of one do

    @property
    def description(self) -> str:
        settings = {"text": self.text, "line": self.line, "order": self.order, "repair": self.repair}
        return f"{self.source} ({' '.join(f'--{name} {value}' for name, value in settings.items())})"

    def columns(self, names: Collection[str], given: Mapping[str, str | None]) -> dict[str, str]:
        """Return the columns `text`, `line` and `order` of a table with these names; what is `given` is left as it is.

        Raises:
            InputError: the table lacks one of them.
        """
        chosen = {}
        for option in ("text", "line", "order"):
            wanted: str = getattr(self, option)
            if named := given.get(option):
                chosen[option] = named
                continue
            present = [next((x for x in part.split("|") if x in names), part) for part in wanted.split(",")]
            if missing := [name for name in present if name not in names]:
                way = f"The table has {', '.join(names)}; --{option} names another"
                limit = f"this layout ({self.source}) needs a column {' or '.join(missing[0].split('|'))}"
                raise InputError(f"--{option}", wanted, limit, way)
            chosen[option] = ",".join(present)
        return chosen


LAYOUTS = {
    "natural-stories": Layout(
        "processed_RTs.tsv or processed_wordinfo.tsv, Futrell et al. 2021",
        *("word", "item", "zone", "WorkerId", "RT|meanItemRT", "readings"),
    ),
    # its column Word comes from the cloze norms, and lacks first words; IA_LABEL is what the screen showed
    "provo": Layout(
        "Provo_Corpus-Eyetracking_Data.csv, Luke and Christianson 2018",
        *("IA_LABEL", "Text_ID", "IA_ID", "Participant_ID", "IA_FIRST_RUN_DWELL_TIME", "encoding,logicals,readings"),
    ),
    # articles are numbered anew in each batch
    "onestop": Layout(
        "ia_Paragraph.csv, Berzak et al. 2025",
        *("IA_LABEL", "article_batch,article_id,difficulty_level,paragraph_id", "IA_ID"),
        *("participant_id", "IA_FIRST_RUN_DWELL_TIME", "readings", "article_batch,article_id"),
    ),
    "meco": Layout(
        "joint_data_trimmed as CSV, Siegelman et al. 2022",
        *("word|ia", "lang,trialid", "wordnum|ianum", "uniform_id", "firstrun.dur", "readings"),
    ),
    "ucl": Layout(
        "selfpacedreading.RT.txt or eyetracking.RT.txt, Frank et al. 2013",
        *("word", "sent_nr", "word_pos", "subj_nr", "RT|RTfirstpass", "readings"),
    ),
    "dundee": Layout(
        "Dundee Treebank, Barrett et al. 2015",
        *("Word|WORD", "SentenceID", "ID", "Participant", "First_pass_dur", "marks,readings"),
    ),
}

_LOST = re.compile("(?<=[^\\W\\d_])\ufffd(?=[^\\W\\d_])")
_NOT_IN_CP1252 = "\x81\x8d\x8f\x90\x9d"
_OPENS = re.compile(r"[(\[{«“‘`$£€]+")
_ENDS = re.compile(r"[.,;:!?…%)\]}»”’\"']+|n['’]t|['’](s|re|ve|ll|d|m)", re.I)


def repaired(word: str, repairs: Collection[str]) -> str:
    """Return a word of a table after `encoding` and `logicals`, if these are among the `repairs`."""
    if "encoding" in repairs:
        with suppress(UnicodeError):
            word = b"".join(x.encode("latin-1" if x in _NOT_IN_CP1252 else "cp1252") for x in word).decode()
        word = _LOST.sub("’", word)
    if "logicals" in repairs and word.strip() in ("TRUE", "FALSE"):
        word = word.lower()
    return word


def with_marks(words: Sequence[str]) -> list[str]:
    """Join rows of punctuation or endings alone with the word beside them; their own place in the line is then empty.

    A straight quotation mark opens and closes in turn; a dash stays a word.
    """
    joined, before, quotes, last = [""] * len(words), "", 0, -1
    for place, word in enumerate(map(str.strip, words)):
        quotes += word == '"'
        if _OPENS.fullmatch(word) or (word == '"' and quotes % 2):
            before += word
        elif _ENDS.fullmatch(word) and last >= 0 and not before:
            joined[last] += word
        else:
            joined[place], before, last = before + word, "", place
    if before:
        joined[last] += before  # a line that ends in what opens
    return joined


class Reading(Protocol):
    """A row of a table: a word that a reader read; `place` is `FILE, line N`."""

    @property
    def text(self) -> str: ...
    @property
    def line(self) -> tuple[object, ...]: ...
    @property
    def order(self) -> tuple[float, ...]: ...
    @property
    def place(self) -> str: ...


R = TypeVar("R", bound=Reading)


def words_of(rows: Iterable[R], odd: RowNotes) -> Iterator[list[R]]:
    """Yield the readings of each word; `rows` are sorted by line and place.

    The word is spelled as most rows have it, of equally many as the first. Rows with another spelling are left out, and
    `odd`; so is a word after a gap between whole places, but it stays.
    """
    for line, group in groupby(rows, key=lambda row: row.line):
        words = [list(readings) for _, readings in groupby(group, key=lambda row: row.order)]
        for before, after in pairwise(words):
            gap = after[0].order[-1] - before[0].order[-1] - 1
            if after[0].order[:-1] == before[0].order[:-1] and gap >= 1:
                lacking = f"line {','.join(map(str, line))} has no row for {gap:g} places before this word"
                odd.add(after[0].place, lacking)
        for readings in words:
            spelled = Counter(row.text.strip() for row in readings).most_common(1)[0][0]
            for row in readings:
                if row.text.strip() != spelled:
                    odd.add(row.place, f"has {row.text.strip()!r} where other rows have {spelled!r}; left out")
            yield [row for row in readings if row.text.strip() == spelled]
