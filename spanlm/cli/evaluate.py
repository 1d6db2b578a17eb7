"""`spanlm evaluate RUN`."""

from __future__ import annotations

import json

from spanlm.cli.allocation import keep_freed_memory
from spanlm.cli.arguments import add_corpus, add_run, verb_parser
from spanlm.cli.report import describe
from spanlm.cli.terminal import out, table
from spanlm.evaluation.perplexity import Evaluation
from spanlm.models.counting import count_parameters
from spanlm.trained import TrainedModel, load

_DESCRIPTION = """
Perplexity of a trained model: exp(total NLL / predicted tokens), with every token of the split predicted exactly
once and <eos> counted. Words outside the vocabulary are read and predicted as <unk>; their share is shown, and the
perplexity without them, since a vocabulary with more <unk> makes a text easier.
"""


def run(arguments: list[str]) -> None:
    """Evaluate."""
    keep_freed_memory()
    parser = verb_parser("evaluate", _DESCRIPTION)
    add_run(parser)
    add_corpus(parser)
    parser.add_argument(
        "--state",
        choices=("auto", "carry", "document", "line"),
        default="auto",
        help="a word's context: the whole split, its document, its line (default: as the model was trained)",
    )
    parser.add_argument(
        "--batch-size", type=int, default=1, help="streams side by side (default 1, the exact protocol)"
    )
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(arguments)
    model = load(options.run, options.device)
    corpus = model.corpus(options.corpus, options.split, data_dir=options.data_dir, download=options.download)
    result = model.evaluate(
        corpus, options.split, state=options.state, batch_size=options.batch_size, precision=options.precision
    )
    if options.json:
        out(json.dumps({"run": str(options.run), "notes": corpus.notes, **result.to_json()}))
    else:
        _show(model, result, corpus.notes)


def _show(model: TrainedModel, result: Evaluation, notes: list[str]) -> None:
    for note in notes:
        out(note)
    count = count_parameters(model.model)
    without = result.perplexity_without_unk
    table(
        [
            (
                "model",
                f"{model.folder}: {describe(model.config.model)}; θ_M {count.model:,}, θ_W+M {count.total:,}",
            ),
            ("text", f"{result.corpus} {result.split}: {result.tokens:,} tokens"),
            ("protocol", result.protocol),
            ("perplexity", f"{result.perplexity:.2f}"),
            (
                "NLL",
                f"{result.nll_per_token:.4f} nats = {result.bits_per_token:.4f} bits; total {result.nll:,.1f} nats",
            ),
            (
                "unknown",
                f"{result.oov_tokens:,} words of the text are not in the vocabulary ({result.oov_share:.2%})",
            ),
            (
                "<unk>",
                f"{result.unk_tokens:,} targets ({result.unk_share:.2%}); perplexity without them "
                + ("– (there are no others)" if without is None else f"{without:.2f}"),
            ),
            ("speed", f"{result.tokens_per_second:,.0f} tokens/s"),
        ]
    )
