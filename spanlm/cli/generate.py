"""`spanlm generate RUN --prompt …`."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import asdict

from spanlm.cli.evaluation_report import departures
from spanlm.cli.options import Parser, add_fields, field_values, load_runs
from spanlm.cli.render import note
from spanlm.data.vocabulary import EOS
from spanlm.scoring.options import GenerationOptions

_DESCRIPTION = """
Continue a prompt, word by word. Where the model ends a line (<eos>), a line ends.

  spanlm generate runs/demo --prompt "the name" --length 100
  spanlm generate runs/demo --prompt "the name" --temperature 0.8 --top-p 0.9
  spanlm generate runs/demo --prompt "the name" --samples 5 --length 20
"""
_MORE = """
The prompt is cut into words as the training text was, and into sentences if its lines were (data.lines=sentences); a
line end in it is <eos>.

At a line end the model keeps its state and memory, unless it was trained on independent sentences
(training.batching.kind=sentences): then both are emptied, and only the last line of the prompt is read. A model that
does not predict first words (training.batching.predict_first=false) needs a prompt, and stops at the end of its line.

Of --samples N, text 1 has the words of --seed alone, text 2 those of the next seed, and so on.
"""


def run(arguments: list[str]) -> None:
    parser = Parser("generate", _DESCRIPTION, more=_MORE)
    parser.add_runs(hf=False)
    parser.add_argument("--prompt", default="", metavar="TEXT", help="words to continue (default: start a line)")
    parser.add_argument("--samples", type=int, default=1, metavar="N", help="draw N texts, each under its number")
    add_fields(parser, GenerationOptions)
    parser.add_gate(texts=True)
    options = parser.parse_intermixed_args(arguments)
    drawn = field_values(options, GenerationOptions)
    model = load_runs([options.run, *options.more], options)
    given = dict.fromkeys(model.texts.prompt(options.prompt))
    if unknown := [word for word in given if word not in model.vocabulary]:
        note(f"note: the vocabulary lacks these words of the prompt, which stand for <unk>: {', '.join(unknown)}")
    if options.samples == 1:
        _write(options.prompt, model.words(options.prompt, **asdict(drawn)))
    else:
        for number, words in enumerate(model.samples(options.samples, options.prompt, **asdict(drawn)), start=1):
            sys.stdout.write(f"{number}:\n")
            _write(options.prompt, words)
    note(*(f"note: {line}" for line in model.texts.unk_notes() if options.unk), *departures(model))


def _write(prompt: str, words: Iterable[str]) -> None:
    """Write a prompt and the words after it, each as soon as it is there, up to a line's end."""
    sys.stdout.write(prompt)
    at_line_start = not prompt or prompt.endswith("\n")
    for word in words:
        sys.stdout.write("\n" if word == EOS else word if at_line_start else f" {word}")
        sys.stdout.flush()
        at_line_start = word == EOS
    sys.stdout.write("" if at_line_start else "\n")
    sys.stdout.flush()  # the words come before the notes
