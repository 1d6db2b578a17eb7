"""Reading drawings: their texts, marks and edges."""

from __future__ import annotations

from spanlm.analysis.drawing import Drawing, Line, Mark, Rect, Shape, Text, text_width


def texts(drawing: Drawing) -> list[str]:
    return [shape.text for shape in drawing.shapes if isinstance(shape, Text)]


def marks(drawing: Drawing) -> list[Mark]:
    return [shape for shape in drawing.shapes if isinstance(shape, Mark)]


def assert_on_paper(drawing: Drawing) -> None:
    for shape in drawing.shapes:
        for x, y in corners(shape):
            assert -0.01 <= x <= drawing.width and 0 <= y <= drawing.height, shape


def assert_texts_apart(drawing: Drawing) -> None:
    boxes = [(shape, *corners(shape)) for shape in drawing.shapes if isinstance(shape, Text)]
    for number, (one, (left, top), (right, bottom)) in enumerate(boxes):
        for other, (other_left, other_top), (other_right, other_bottom) in boxes[number + 1 :]:
            apart = right <= other_left or other_right <= left or bottom <= other_top or other_bottom <= top
            assert apart, (one, other)


def corners(shape: Shape) -> list[tuple[float, float]]:
    match shape:
        case Rect():
            return [(shape.x, shape.y), (shape.x + shape.width, shape.y + shape.height)]
        case Line():
            return list(shape.points)
        case Mark():
            reach = 1.3 * shape.radius
            return [(shape.x - reach, shape.y - reach), (shape.x + reach, shape.y + reach)]
        case Text():
            width = text_width(shape.text, shape.size)
            left = shape.x - {"start": 0.0, "middle": width / 2, "end": width}[shape.anchor]
            if shape.upwards:  # as from the left to the right, turned about (x, y)
                ahead = shape.x - left
                return [(shape.x - shape.size, shape.y - width + ahead), (shape.x, shape.y + ahead)]
            return [(left, shape.y - shape.size), (left + width, shape.y)]
