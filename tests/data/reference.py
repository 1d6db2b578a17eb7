"""The rules for texts once more, as plain loops over the whole text; and texts that are read in two chunks."""

from hypothesis import strategies as st

from spanlm.data.config import Documents
from spanlm.data.text import CHUNK_BYTES
from spanlm.data.vocabulary import EOS

TITLE = "_BOOK_TITLE_"
PLACES = st.none() | st.integers(0, 60)


def cut_at(place: int | None, data: bytes) -> bytes:
    """The text, after lines that are so long that its first chunk ends at this place; without a place, alone."""
    if place is None:
        return data
    lines, rest = divmod(CHUNK_BYTES - place, 1024)
    return (b"x" * 1023 + b"\n") * lines + b"x" * (rest - 1) + b"\n" * bool(rest) + data


def lines_of(data: bytes) -> list[list[str]]:
    lines = data.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    return [[word.decode() for word in line.split()] for line in lines]


def is_framed(line: list[str]) -> bool:
    return len(line) >= 3 and line[0] == "=" == line[-1] and line[1] != "=" != line[-2]


def read_text(lines: list[list[str]], documents: Documents) -> tuple[list[str], list[int]]:
    """The words of a text with `<eos>` after each line, and where its documents start."""

    def blank(index: int) -> bool:
        return not 0 <= index < len(lines) or not lines[index]

    framed = [index for index, line in enumerate(lines) if is_framed(line)]
    strict = bool(framed) and blank(framed[0] - 1) and blank(framed[0] + 1)
    words: list[str] = []
    starts, seen_word, after_title = [0], False, False
    for index, line in enumerate(lines):
        if documents == "book-title" and line[:1] == [TITLE]:
            after_title = True
            continue
        mark = {
            "none": False,
            "blank-line": bool(line) and blank(index - 1),
            "heading": is_framed(line) and (not strict or (blank(index - 1) and blank(index + 1))),
            "book-title": after_title,
        }[documents]
        if mark and seen_word:
            starts.append(len(words))
        seen_word, after_title = seen_word or bool(line), False
        words += [*line, EOS]
    return words, starts
