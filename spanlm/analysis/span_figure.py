"""What a span buffer did at the last word of a text, as a figure (Li et al., 2020, Figure 5 and Table 4).

From the top: the words before and the word that came; what buffer, encoder and both expected; the buffer's spans,
darker where more was looked; and the same at the steps before, a row each.
"""

from __future__ import annotations

from spanlm.analysis.axes import end_with_caption
from spanlm.analysis.drawing import Drawing, Rect, Text, clip, text_width, wrap
from spanlm.analysis.palette import CAME_INK, FAINT, INK, MUTED, blue
from spanlm.analysis.reading import Expected
from spanlm.analysis.span_marks import gate_bar, percent
from spanlm.analysis.span_steps import draw_steps, steps_shown
from spanlm.analysis.span_tiles import draw_tiles
from spanlm.analysis.spans import PARTS, SpanRecord

_MARGIN, _WIDTH = 28, 1040
_INSIDE = _WIDTH - 2 * _MARGIN
_TITLE_SIZE, _HEAD_SIZE, _WORD_SIZE, _NOTE_SIZE = 15, 12.5, 12, 10.5
_NAMES = {"buffer": "buffer alone", "encoder": "encoder alone", "mixture": "both"}
_NAME = 130
_DATA = _MARGIN + _NAME
_SHOWN, _CANDIDATE, _PART, _LINE, _GATE = 4, 172, 26, 21, 160
_SPACE = 30


def span_figure(record: SpanRecord) -> Drawing:
    """Draw the last position of `record`, and up to 32 positions that end there."""
    last = len(record) - 1
    drawing = Drawing(_WIDTH, 0, record.title, "")
    y = _title(drawing, record.title)
    y = _context(drawing, record, last, y)
    y = _expected(drawing, record, last, y)
    y = _heading(drawing, _buffer_heading(record, last), y)
    if record.filled[last]:
        y = draw_tiles(drawing, record, last, (_MARGIN, y, _INSIDE)) + _SPACE
        steps = steps_shown(record)
        y = _heading(drawing, f"The last {len(steps)} steps", y)
        y = draw_steps(drawing, record, steps, (_MARGIN, y, _INSIDE)) + _SPACE
    end_with_caption(drawing, _caption(record), _MARGIN, y, _INSIDE)
    return drawing


def _caption(record: SpanRecord) -> str:
    said = (
        "λ: how much the gate prefers the buffer, before its temperature; the tick is at ½. "
        "α: the weights of the spans at a step; they sum to 1. "
    )
    span = f"A span of {record.span} steps stands for the words it ends with" if record.span > 1 else "A span is a word"
    none = ", and the word just read is in none" if record.nearest_lag else ""
    return f"{said}{span}{none}. What came is orange where it was expected."


def _title(drawing: Drawing, title: str) -> float:
    lines = wrap(title, _TITLE_SIZE, _INSIDE)
    for number, line in enumerate(lines):
        drawing.add(Text(_MARGIN, _MARGIN + 12 + 20 * number, line, _TITLE_SIZE, bold=True))
    return _MARGIN + 20.0 * len(lines) + 26


def _heading(drawing: Drawing, text: str, y: float) -> float:
    """Write a heading below y; return where what it heads can begin."""
    drawing.add(Text(_MARGIN, y + 12, text, _HEAD_SIZE, bold=True))
    return y + 26


def _buffer_heading(record: SpanRecord, last: int) -> str:
    looks = record.looks(last)
    if not looks:
        return "The buffer is empty: no span has passed yet"
    what = f"{len(looks)} spans of {record.span} words" if record.span > 1 else f"{len(looks)} words"
    return f"The buffer: {what}, the newest last"


def _context(drawing: Drawing, record: SpanRecord, last: int, y: float) -> float:
    """Write as many of the words before as fit on a line, what came, and the gate; return where that ends."""
    words, room = [clip(record.words[last], _WORD_SIZE, _INSIDE - _NAME - 30)], _INSIDE - _NAME
    for word in reversed(record.words[:last]):
        if text_width(" ".join(["…", word, *words]), _WORD_SIZE) > room:
            break
        words.insert(0, word)
    said = " ".join([*(["…"] if len(words) <= last else []), *words])
    came = Text(_DATA, y + _LINE, clip(record.targets[last], _WORD_SIZE, room), _WORD_SIZE, CAME_INK, bold=True)
    drawing.add(_name("after", y), Text(_DATA, y, said, _WORD_SIZE), _name("came", y + _LINE), came)
    y += 2 * _LINE
    if record.filled[last]:
        gate = float(record.gate[last])
        preferred = "buffer" if gate >= 0.5 else "encoder"
        gate_bar(drawing, gate, (_DATA, y - 9, _GATE, 10))
        said = f"λ {gate:.3f}: the {preferred} is preferred"
        drawing.add(_name("gate", y), Text(_DATA + _GATE + 12, y, said, _WORD_SIZE))
        y += _LINE
    return y + 10


def _name(text: str, y: float) -> Text:
    return Text(_MARGIN, y, text, _WORD_SIZE, MUTED)


def _expected(drawing: Drawing, record: SpanRecord, last: int, y: float) -> float:
    """Table 4; return where it ends."""
    shown = {part: getattr(record, part)[last][:_SHOWN] for part in _NAMES if record.filled[last] or part == "encoder"}
    most = max(chance for row in shown.values() for _, chance in row)
    right = _DATA + _SHOWN * _CANDIDATE
    drawing.add(
        Text(_DATA, y, "expected most", _NOTE_SIZE, MUTED),
        Text(right, y, f"gave “{clip(record.targets[last], _NOTE_SIZE, 100)}”", _NOTE_SIZE, MUTED),
    )
    for part, row in shown.items():
        y += _PART
        drawing.add(_name(_NAMES[part], y))
        _candidates(drawing, row, record.targets[last], most, y)
        drawing.add(Text(right, y, percent(float(record.chance[last, PARTS.index(part)])), _WORD_SIZE, CAME_INK))
    return y + 28


def _candidates(drawing: Drawing, row: Expected, came: str, most: float, y: float) -> None:
    """Write words with their probabilities, each over a bar."""
    for number, (word, chance) in enumerate(row):
        x, number_width = _DATA + number * _CANDIDATE, 52
        ink = CAME_INK if word == came else INK
        name = clip(word, _WORD_SIZE, _CANDIDATE - 18 - number_width)
        drawing.add(
            Text(x, y, name, _WORD_SIZE, ink, bold=word == came),
            Text(x + _CANDIDATE - 18, y, percent(chance), _NOTE_SIZE, ink if word == came else MUTED, "end"),
            Rect(x, y + 5, _CANDIDATE - 18, 3, FAINT),
            Rect(x, y + 5, (_CANDIDATE - 18) * chance / most, 3, CAME_INK if word == came else blue(0.6)),
        )
