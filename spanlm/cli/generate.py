"""`spanlm generate RUN --prompt …`."""

from __future__ import annotations

import argparse
import codecs
import sys
from collections.abc import Iterable
from dataclasses import asdict
from itertools import chain

from spanlm.cli.evaluation_report import departures
from spanlm.cli.options import load_runs
from spanlm.cli.parser import field_values
from spanlm.cli.render import note
from spanlm.data.tokenizer import WHITE_SPACE
from spanlm.runs.model import Model
from spanlm.scoring.options import GenerationOptions


def run(options: argparse.Namespace) -> None:
    drawn = field_values(options, GenerationOptions)
    model = load_runs([options.run, *options.more], options)
    prompt_words = dict.fromkeys(model.texts.prompt(options.prompt))
    if unknown := [word for word in prompt_words if word not in model.vocabulary]:
        note(f"note: the vocabulary lacks these words of the prompt, which stand for <unk>: {', '.join(unknown)}")
    if options.samples == 1:
        _write(model, options.prompt, model.words(options.prompt, **asdict(drawn)))
    else:
        for number, words in enumerate(model.samples(options.samples, options.prompt, **asdict(drawn)), start=1):
            sys.stdout.write(f"{number}:\n")
            _write(model, options.prompt, words)
    note(*(f"note: {line}" for line in model.texts.unk_notes() if options.unk), *departures(model))


def _write(model: Model, prompt: str, words: Iterable[str]) -> None:
    """Write a prompt and the generated words, each as soon as it is drawn; end the last line."""
    tokenizer, last = model.texts.tokenizer, ""
    begun = prompt.encode(errors="surrogateescape" if tokenizer.exact else "backslashreplace")
    spelled = tokenizer.spelled(words, at_line_start=prompt[-1:] in ("", *WHITE_SPACE))
    decode = codecs.getincrementaldecoder("utf-8")("replace").decode  # a prompt may end within a character
    for text in map(decode, chain([begun], spelled)):
        sys.stdout.write(text)
        sys.stdout.flush()
        last = text or last
    sys.stdout.write("" if not last or last.endswith("\n") else "\n")
    sys.stdout.flush()  # the words must come before the notes on standard error
