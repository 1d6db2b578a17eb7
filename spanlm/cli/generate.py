"""`spanlm generate RUN --prompt …`."""

from __future__ import annotations

import sys

from spanlm.cli.evaluation_report import gate_note
from spanlm.cli.options import add_device, add_gate, add_runs, load_runs, verb_parser
from spanlm.cli.render import note
from spanlm.data.vocabulary import EOS

_DESCRIPTION = """
Continue a prompt, word by word. A line end (<eos>) is printed as one. The prompt is cut into words as the training text
was, and into sentences if its lines were (data.lines=sentences); a line end in it is one.

After a line end a model goes on as it was trained: with what it remembers; or, of lines or sentences that know nothing
of each other (training.batching.kind=sentences), with an empty state and memory, in which case only the prompt's last
line is read. One that predicts no first words (training.batching.predict_first=false) needs a word to begin with, and
ends where its line does.

  spanlm generate runs/demo --prompt "the name" --temperature 0.8 --top-p 0.9
"""
_CHOICES = ("length", "temperature", "top_k", "top_p", "seed", "unk")


def run(arguments: list[str]) -> None:
    """Generate."""
    parser = verb_parser("generate", _DESCRIPTION)
    add_runs(parser)
    add_device(parser)
    parser.add_argument("--prompt", default="", help="words to continue (default: start a line)")
    parser.add_argument("--length", type=int, default=50, help="how many words (default 50)")
    parser.add_argument(
        "--temperature", type=float, default=1.0, help="1: as the model says; 0: always the most probable"
    )
    parser.add_argument("--top-k", type=int, help="draw from the k most probable words")
    parser.add_argument(
        "--top-p", type=float, help="draw from the fewest words that hold this share of the probability"
    )
    parser.add_argument("--seed", type=int, default=1, help="the same seed gives the same words (default 1)")
    parser.add_argument("--unk", action="store_true", help="let <unk> be drawn, too")
    add_gate(parser)
    options = parser.parse_intermixed_args(arguments)
    model = load_runs([options.run, *options.more], options)
    words = model.words(options.prompt, **{name: getattr(options, name) for name in _CHOICES})
    sys.stdout.write(options.prompt)
    at_line_start = not options.prompt or options.prompt.endswith("\n")
    for word in words:
        sys.stdout.write("\n" if word == EOS else word if at_line_start else f" {word}")
        sys.stdout.flush()
        at_line_start = word == EOS
    sys.stdout.write("" if at_line_start else "\n")
    sys.stdout.flush()  # the words come before the notes
    for line in [*(f"note: {line}" for line in model.texts.unk_notes() if options.unk), *gate_note(model)]:
        note(line)
