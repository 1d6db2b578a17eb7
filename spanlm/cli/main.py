"""`spanlm VERB …`: finds the verb, and turns errors into one line and an exit status.

Nothing heavy is imported before a verb needs it. Exit status: 0 done, 1 failed while running, 2 bad input,
128 + number ended by a signal.
"""

from __future__ import annotations

from spanlm.cli import stop_at_once

stop_at_once(loading=True)  # from here on Ctrl-C prints one line

# ruff: noqa: E402 -- the handler must be set before any other import
import argparse
import importlib
import io
import logging
import os
import re
import signal
import sys
from typing import Any, TextIO

from spanlm import __version__
from spanlm.errors import InputError, SpanlmError, nearest
from spanlm.store.plain import visible
from spanlm.store.signals import follow_parent

stop_at_once(loading=False)

VERBS = {
    "train": "train a model: the demo, a published preset, or your own text",
    "sweep": "many trainings: a grid of settings, on one machine or many",
    "evaluate": "perplexity of a trained model, with its protocol spelled out",
    "compare": "is one model better than another, how surely, and at which words?",
    "context": "how much context a model uses, and what of it",
    "score": "surprisal, entropy and rank of every word of a text",
    "reading": "reading times: what a model's surprisal adds to their prediction",
    "pairs": "minimal pairs: is the good sentence more probable than the bad one?",
    "rescore": "n-best lists of speech recognition or translation, ranked anew",
    "cloze": "which word fits a gap: questions like the Children's Book Test's",
    "attend": "where the model looked at each word, as a page, figure or table",
    "generate": "let the model continue a prompt",
    "serve": "a page to play with trained models, in your browser",
    "plot": "learning curves of runs: train and valid, seeds as bands",
    "export": "a trained model for Hugging Face's transformers",
    "data": "make a corpus to train on from articles of Wikipedia",
    "presets": "the published table rows that can be trained by name",
    "reproduce": "the tables of a paper, run again: measured and published numbers",
    "bench": "how long an epoch of a preset takes here, and what takes the time",
}


def _overview() -> str:
    width = max(map(len, VERBS))
    verbs = "\n".join(f"  {name:<{width}}  {text}" for name, text in VERBS.items())
    return (
        "usage: spanlm VERB [OPTIONS]\n\n"
        "Recurrent language models that look back.\n\n"
        f"verbs:\n{verbs}\n\n"
        "`spanlm train` alone is the place to start: it takes about a minute.\n"
        "`spanlm help VERB` explains a verb.\n"
    )


def _version() -> str:
    from spanlm.store.provenance import PACKAGE, commit_of

    commit, changed = commit_of(PACKAGE)
    return f"spanlm {__version__}" + (f" (commit {commit[:10]}{', changed' if changed else ''})" if commit else "")


def main(arguments: list[str] | None = None) -> int:
    stop_at_once(loading=True)
    program, arguments = arguments is None, sys.argv[1:] if arguments is None else arguments
    follow_parent()
    _set_environment()
    for logger in (logging.getLogger("spanlm"), logging.lastResort):
        logger.setLevel(logging.INFO)  # type: ignore[union-attr]  # show notes that Python users do not see
    print_plainly()
    try:
        status = _dispatch(arguments)
        sys.stdout.flush()  # flush here, where a broken pipe is handled
        return status
    except SpanlmError as error:
        return _failed(str(error), error.exit_status)
    except KeyboardInterrupt:
        return _stopped()
    except BrokenPipeError:
        # the reader of the output has gone (`| head`): print nothing, and let the interpreter flush into /dev/null
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except (MemoryError, RuntimeError, ImportError) as error:
        if isinstance(error.__cause__, KeyboardInterrupt):  # Python 3.11 wraps one that comes while a class is made
            return _stopped()
        if not isinstance(error, MemoryError) and not _NO_MEMORY.search(str(error)):
            raise
        why = str(error).partition("\n")[0] or "the system gives no more"
        return _failed(f"out of memory: {why}. Take smaller sizes.", 1)
    except OSError as error:
        return _failed(f"{error.filename or 'input or output'}: {error.strerror or error}", 1)
    finally:
        stop_at_once(loading=program)  # the process ends next


_NO_MEMORY = re.compile("allocat|could not create a primitive|bad_alloc|start new thread|failed to map segment")
"""Matches out-of-memory messages of torch on any device, its kernels, C++, Python and the library loader."""


def _stopped() -> int:
    stop_at_once(loading=True)  # for a second Ctrl-C
    return _failed("stopped", 128 + signal.SIGINT)


def _failed(message: str, status: int) -> int:
    print(f"spanlm: {' '.join(message.split())}", file=sys.stderr)
    return status


def _set_environment() -> None:
    """Set variables that torch and GNU's OpenMP read when they are loaded, unless the user has set them.

    GOMP_SPINCOUNT makes waiting threads yield the processor soon. By default they spin for milliseconds at each of the
    hundreds of products of a step, and on a busy machine they block the threads that they wait for (results/speed.md).
    KINETO_LOG_LEVEL keeps torch's profiler from writing to standard error.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")


class _Plain:
    """A stream to a terminal that escapes control characters; live bars write to `terminal` directly."""

    def __init__(self, terminal: TextIO) -> None:
        self.terminal = terminal

    def write(self, text: str) -> int:
        return self.terminal.write(visible(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.terminal, name)


def print_plainly() -> None:
    """Escape characters that the encoding lacks or a terminal obeys; send the output of a closed stream nowhere."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name) or os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8")
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
        as_it_is = isinstance(stream, _Plain) or (name == "stdout" and not stream.isatty())
        setattr(sys, name, stream if as_it_is else _Plain(stream))


def _dispatch(arguments: list[str]) -> int:
    if arguments[:1] == ["help"] and len(arguments) > 1:  # `help data wikipedia`, too
        arguments = [*arguments[1:], "--help"]
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(_overview(), end="")
        return 0
    verb, *rest = arguments
    if verb in ("-V", "--version", "version"):
        print(_version())
        return 0
    if verb not in VERBS:
        like = nearest(verb, [*VERBS, "data wikipedia"]) or f" Choose from: {', '.join(VERBS)}."
        raise InputError(f"unknown verb {verb}.{like}")
    from spanlm.cli import model_verbs, text_verbs, training_verbs

    parsers = vars(model_verbs) | vars(text_verbs) | vars(training_verbs)
    try:
        # parse before the import of torch: help and wrong options do not need it
        options: argparse.Namespace = parsers[verb](rest)
    except SystemExit as stop:  # the parser has printed help
        return int(stop.code or 0)
    module = importlib.import_module(f"spanlm.cli.{verb}")
    stop_at_once(loading=False)
    try:
        module.run(options)
    except SpanlmError as error:
        return _failed(error.told(options.parser.option_of), error.exit_status)
    return 0
