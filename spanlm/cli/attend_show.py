"""What `spanlm attend` prints: attention by lag, in sentences, how flat it is, and spans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from spanlm.analysis.lags import LEAST_SHOWN, MeasuredLags, lag_columns, notes, signed
from spanlm.analysis.sentences import Flatness, SentenceMap, common_scale, mean_flatness, triangle_lines
from spanlm.analysis.utilisation import EXPLAINED, Utilisation, spread_epochs
from spanlm.cli.render import grid, out, paragraph, table
from spanlm.evaluation.attention import PARTS, Expected, SpanRecord

_FLATNESS = "entropy of a row over that of equal weights: 1 is flat, 0 all on one word"

LOOKS = 8
"""Spans that are printed."""
CONTEXT = 16
"""Words before the next one that are printed."""
EPOCHS = 30
"""Epochs that are printed; a file has all of them."""


def print_lags(measured: Sequence[MeasuredLags]) -> None:
    header, *rows = lag_columns(measured)
    grid(header, rows, "mean attention by lag, percent")
    paragraph(*notes(measured))


def print_maps(sentences: Sequence[Sequence[SentenceMap]]) -> None:
    for maps in sentences:
        top, _ = common_scale(maps)
        for one in maps:
            out(f"{one.name}: {one.memory}")
            for line in triangle_lines(one, top):
                out(f"  {line}")
            out()


def print_sentence_flatness(sentences: Sequence[Sequence[SentenceMap]]) -> None:
    rows = [(f"sentence {number}", [one.flatness for one in maps]) for number, maps in enumerate(sentences, start=1)]
    if len(sentences) > 1:
        rows.append(("all sentences", [mean_flatness(maps) for maps in zip(*sentences, strict=True)]))
    shown = [[name, *("-" if one is None else f"{one.overall.flatness:.3f}" for one in found)] for name, found in rows]
    grid(["", *(one.name for one in sentences[0])], shown, f"flatness ({_FLATNESS})")


def print_flatness(measured: Mapping[str, tuple[str, Flatness]]) -> None:
    paragraph(f"flatness of attention ({_FLATNESS})")
    for name, (text, flatness) in measured.items():
        slots, nearest = ("words", f"at {signed(flatness.nearest_lag)}") if flatness.span == 1 else ("spans", "newest")
        elsewhere = flatness.overall.on_no_word >= LEAST_SHOWN / 100
        header = [slots, "rows", "flatness", "largest", nearest, "equal", *["on no word"] * elsewhere]
        rows = []
        for row in (*flatness.groups, flatness.overall):
            shares = (row.largest, row.nearest, row.equal, *[row.on_no_word] * elsewhere)
            cells = [f"{100 * share:.1f} %" for share in shares]
            rows.append([str(row.slots), f"{row.rows:,}", f"{row.flatness:.3f}", *cells])
        grid(header, rows, f"{name}, {text}")
        out(f"{flatness.left_out:,} rows without a choice are left out")
    paragraph(
        "largest, at ...: mean share of the largest weight and of the nearest word; equal: of each if all were equal"
    )
    if any(one.span > 1 for _, one in measured.values()):
        out("newest: mean share of the span that ended last")


def print_utilisation(measured: Sequence[Utilisation]) -> None:
    header = ["epoch", *(head for one in measured for head in (one.name, "oracle"))]
    rows = [
        [str(epoch + 1), *(_percent(shares, epoch) for one in measured for shares in (one.learned, one.oracle))]
        for epoch in spread_epochs(max(map(len, measured)), EPOCHS)
    ]
    grid(header, rows, "use of the span buffer on valid, in percent")
    paragraph(EXPLAINED)


def _percent(shares: Sequence[float], epoch: int) -> str:
    return f"{100 * shares[epoch]:.1f}" if epoch < len(shares) else ""


def print_spans(record: SpanRecord, temperature: float) -> None:
    """Print the last position: after what, where it looked, and what each part of the model expected."""
    last = len(record.words) - 1
    paragraph(record.title)
    read = record.words[max(last + 1 - CONTEXT, 0) :]
    rows = [("after", " ".join(["…"] * (last + 1 > CONTEXT) + read)), ("came", record.targets[last])]
    if record.filled[last]:
        preferred = "buffer" if record.gate[last] >= 0.5 else "encoder"
        shares = f"λ {record.gate[last]:.3f}, used as {record.used[last]:.3f} (T {temperature:g})"
        rows.append(("gate", f"{shares}: the {preferred} is preferred"))
        rows.append(("buffer alone", _expected(record, "buffer")))
    if unknown := [word for word in dict.fromkeys([*read, record.targets[last]]) if word in record.unknown]:
        rows.insert(2, ("read as <unk>", " ".join(unknown)))
    table([*rows, ("encoder alone", _expected(record, "encoder")), ("both", _expected(record, "mixture"))])
    looks = record.looks(last)
    if not looks:
        out("the buffer is empty: no span has ended yet")
        return
    out()
    what = f"{len(looks)} {'word' if record.span == 1 else 'span'}{'s' if len(looks) > 1 else ''}"
    out(f"it looked at {what}{f'; the {LOOKS} with the largest weights' if len(looks) > LOOKS else ''}:")
    for look in looks[:LOOKS]:
        start, end = look.first + record.first_token, look.last + record.first_token
        place = f"{end:>6}" if record.span == 1 else f"{start:>6}–{end:<6}"
        out(f"  {look.weight:6.1%}  {place}  {record.words_of(look)}")


def _expected(record: SpanRecord, part: str) -> str:
    """Say what a part expected at the last position, and what it gave the word that came."""
    expected: Expected = getattr(record, part)[-1]
    came = f'"{record.targets[-1]}" {record.chance[-1, PARTS.index(part)]:.3f}'
    return f"{', '.join(f'{word} {chance:.3f}' for word, chance in expected)}; {came}"
