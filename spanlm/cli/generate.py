"""`spanlm generate RUN --prompt …`."""

from __future__ import annotations

import sys
from dataclasses import asdict

from spanlm.cli.evaluation_report import departures
from spanlm.cli.options import add_device, add_fields, add_gate, add_runs, field_values, load_runs, verb_parser
from spanlm.cli.render import note
from spanlm.data.vocabulary import EOS
from spanlm.evaluation.generation import GenerationOptions

_DESCRIPTION = """
Continue a prompt, word by word. Where the model ends a line (<eos>), a line ends.

  spanlm generate runs/demo --prompt "the name" --length 100
  spanlm generate runs/demo --prompt "the name" --temperature 0.8 --top-p 0.9
"""
_MORE = """
The prompt is cut into words as the training text was, and into sentences if its lines were (data.lines=sentences); a
line end in it is <eos>.

At a line end the model keeps its state and memory, unless it was trained on independent sentences
(training.batching.kind=sentences): then both are emptied, and only the last line of the prompt is read. A model that
does not predict first words (training.batching.predict_first=false) needs a prompt, and stops at the end of its line.
"""


def run(arguments: list[str]) -> None:
    """Generate."""
    parser = verb_parser("generate", _DESCRIPTION, more=_MORE)
    add_runs(parser)
    add_device(parser)
    parser.add_argument("--prompt", default="", metavar="TEXT", help="words to continue (default: start a line)")
    add_fields(parser, GenerationOptions)
    add_gate(parser)
    options = parser.parse_intermixed_args(arguments)
    drawn = field_values(options, GenerationOptions)
    model = load_runs([options.run, *options.more], options)
    words = model.words(options.prompt, **asdict(drawn))
    sys.stdout.write(options.prompt)
    at_line_start = not options.prompt or options.prompt.endswith("\n")
    for word in words:
        sys.stdout.write("\n" if word == EOS else word if at_line_start else f" {word}")
        sys.stdout.flush()
        at_line_start = word == EOS
    sys.stdout.write("" if at_line_start else "\n")
    sys.stdout.flush()  # the words come before the notes
    for line in [*(f"note: {line}" for line in model.texts.unk_notes() if options.unk), *departures(model)]:
        note(line)
