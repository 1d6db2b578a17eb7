"""`spanlm attend RUN`."""

from __future__ import annotations

from pathlib import Path

from spanlm.analysis.attend import attention_by_lag
from spanlm.analysis.by_lag import format_lag_table, published_by_lag
from spanlm.analysis.export import check_attention_path, check_lag_path, save_attention, save_lag_profile
from spanlm.cli.arguments import add_corpus, add_run, verb_parser
from spanlm.cli.report import out
from spanlm.config import RunConfig
from spanlm.data.corpora import WHOLE
from spanlm.data.text import Text
from spanlm.errors import InputError
from spanlm.evaluation.perplexity import evaluation_batcher
from spanlm.evaluation.text_pieces import text_as_pieces
from spanlm.models.memories import KeyValueConfig
from spanlm.trained import TrainedModel, load

_DESCRIPTION = """
Where the model looked.

  spanlm attend runs/demo --text "the name is bound to the object ." --out look.html
  spanlm attend runs/demo --file chapter.txt --out look.csv
  spanlm attend runs/demo --by-lag --split valid --out lags.svg

A page (.html, one self-contained file: hover a word), a figure (.svg, .png) or data (.csv, .npz) of one text; or,
with --by-lag, mean attention by distance over a whole split as a table and (--out) a figure or data.
"""

MOST_WORDS = 20_000
"""Of a --file: a page of more is no longer pleasant, and its weights no longer small."""


def run(arguments: list[str]) -> None:
    """Attend."""
    parser = verb_parser("attend", _DESCRIPTION)
    add_run(parser)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--text", help="read this text")
    what.add_argument("--file", type=Path, help="read this file")
    what.add_argument("--by-lag", action="store_true", help="mean attention by lag over a split of a corpus")
    add_corpus(parser)
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help=".html, .svg, .png, .csv or .npz; by lag .svg, .png, .csv or .json",
    )
    options = parser.parse_args(arguments)
    if options.out is None and not options.by_lag:
        raise InputError("--out is missing: name a file that ends in .html, .svg, .png, .csv or .npz")
    if options.out is not None:
        (check_lag_path if options.by_lag else check_attention_path)(options.out)
    model = load(options.run, options.device)
    if options.by_lag:
        corpus = model.corpus(options.corpus, options.split, data_dir=options.data_dir, download=options.download)
        split = WHOLE if WHOLE in corpus.splits else options.split
        kind = model.batching(corpus, split)
        profile = attention_by_lag(model.model, evaluation_batcher(corpus, split, kind, 1))
        published = published_name(model.config)
        out(f"mean attention by lag, {corpus.name} {split}, {profile.positions:,} positions with a full window")
        for row in format_lag_table(profile, published):
            beside = "" if row.published is None else f"   paper {row.published:5.1f} %"
            out(f"  −{row.lag:<3} {row.measured:5.1f} %{beside}")
        if published is not None and published_by_lag(published, profile.window) is None:
            out("  (the paper's Figure 3b has windows of 15 only: none stands beside these)")
        if options.out is not None:
            save_lag_profile(profile, options.out, published)
    else:
        save_attention(model.attend(_text(model, options.text, options.file)), options.out)
    if options.out is not None:
        out(f"wrote {options.out}")


def _text(model: TrainedModel, text: str | None, file: Path | None) -> str:
    if text is not None:
        return text
    assert file is not None
    lines, held = [], 0
    for piece in text_as_pieces(Text(file), model.config.data.effective_tokenizer):
        held += len(piece.words) + piece.closes
        if held > MOST_WORDS:
            raise InputError(f"--file={file}: more than {MOST_WORDS:,} words and line ends; attend to a part of it")
        if piece.opens:
            lines.append("")
        lines[-1] += " ".join(["", *piece.words])
    return "\n".join(lines)


def published_name(config: RunConfig) -> str | None:
    """Return which row of the paper's Figure 3b this model can stand beside."""
    memory = config.model.memory
    return memory.name if isinstance(memory, KeyValueConfig) else None
