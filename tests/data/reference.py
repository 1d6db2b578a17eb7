"""The rules for texts once more, as plain loops over the whole text."""

from __future__ import annotations

from spanlm.data.config import Documents
from spanlm.data.vocabulary import EOS


def lines_of(data: bytes) -> list[list[str]]:
    lines = data.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    return [[word.decode() for word in line.split()] for line in lines]


def tokens_of(lines: list[list[str]]) -> list[str]:
    return [word for line in lines for word in (*line, EOS)]


def is_framed(line: list[str]) -> bool:
    return len(line) >= 3 and line[0] == "=" == line[-1] and line[1] != "=" != line[-2]


def document_starts(lines: list[list[str]], documents: Documents) -> list[int]:
    def blank(index: int) -> bool:
        return not 0 <= index < len(lines) or not lines[index]

    framed = [index for index, line in enumerate(lines) if is_framed(line)]
    strict = bool(framed) and blank(framed[0] - 1) and blank(framed[0] + 1)
    starts, at, seen_word = [0], 0, False
    for index, line in enumerate(lines):
        if documents == "blank-line":
            mark = bool(line) and blank(index - 1)
        elif documents == "heading":
            mark = is_framed(line) and (not strict or (blank(index - 1) and blank(index + 1)))
        else:
            mark = False
        if mark and seen_word:
            starts.append(at)
        seen_word = seen_word or bool(line)
        at += len(line) + 1
    return starts
