"""`spanlm VERB …`: finds the verb, and turns errors into one line and an exit status.

Nothing heavy is imported before a verb needs it. Exit status: 0 done, 1 failed while running, 2 bad input,
128 + number ended by a signal.
"""

from __future__ import annotations

from spanlm.cli import stop_at_once

stop_at_once(loading=True)  # Ctrl-C is one line from here on

# ruff: noqa: E402 -- no other import comes before
import argparse
import importlib
import io
import logging
import os
import re
import shutil
import signal
import sys
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, NoReturn, TextIO

from spanlm import __version__
from spanlm.errors import InputError, Note, SpanlmError, nearest, told
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


def filled(text: str, margin: int = 2) -> str:
    """Break paragraphs to the width of the terminal; examples, which are indented, stay as they are."""
    width = shutil.get_terminal_size().columns - margin
    return "\n\n".join(
        part if part.startswith(" ") else textwrap.fill(" ".join(part.split()), width, break_on_hyphens=False)
        for part in text.strip("\n").split("\n\n")
    )


_LAST = ("--data-dir", "--device", "--precision", "--threads", "--as-text", "--json", "--help")
"""Options that many verbs share; they come after the verb's own."""

_MORE = "more options"


class _Formatter(argparse.RawDescriptionHelpFormatter):
    def _format_action_invocation(self, action: argparse.Action) -> str:
        if "--help" in action.option_strings:
            return "-h, --help [all]"
        return super()._format_action_invocation(action)


class _Help(argparse.Action):
    def __call__(self, parser: Any, namespace: argparse.Namespace, value: Any, option: object = None) -> None:
        if value not in ("", "all"):
            raise InputError(f"--help {value}: there is the help, and `--help all`")
        print(parser.help_text(value == "all"), end="")
        parser.exit()


class VerbParser(argparse.ArgumentParser):
    """A parser whose errors are InputErrors that name the nearest option, with a short and a long help.

    `current` is the parser that was made last, that of the running verb. `elsewhere` gives options of another parser,
    which errors suggest, too. `more` is a description that `--help all` adds. `library_names` maps fields that the
    library knows by a prefix to their options.
    """

    current: ClassVar[VerbParser | None] = None

    def __init__(
        self, verb: str, description: str, *, more: str = "", help_action: str | type[argparse.Action] = _Help
    ) -> None:
        super().__init__(
            prog=f"spanlm {verb}",
            description=filled(description),
            formatter_class=_Formatter,
            add_help=False,
            allow_abbrev=False,
        )
        self.register("type", Path, path)
        self._more, self._rare = filled(more), dict[str, argparse._ArgumentGroup]()
        self._positionals.title = "arguments"
        self.elsewhere: Callable[[], Sequence[str]] = tuple
        self.library_names: dict[str, str] = {}
        settings: dict[str, Any] = {"default": argparse.SUPPRESS} if help_action is _Help else {}
        meaning = "show this; all: every option"
        self.add_argument(
            "-h", "--help", nargs="?", const="", metavar="all", action=help_action, help=meaning, **settings
        )
        VerbParser.current = self

    def add_argument(self, *names: Any, rare: bool | str = False, **settings: Any) -> argparse.Action:
        """Add an argument; one that is `rare` is in `--help all` alone, in the group of that name."""
        if not rare:
            return super().add_argument(*names, **settings)
        group = _MORE if rare is True else rare
        if group not in self._rare:
            self._rare[group] = self.add_argument_group(group)
        return self._rare[group].add_argument(*names, **settings)

    def help_text(self, everything: bool) -> str:
        """Return the help, with the rare options or without them."""
        usage, words = self._get_formatter(), [self.prog]
        for action in sorted(self._actions, key=lambda action: len(action.option_strings)):
            action.help = told(action.help or "", self.option_of)
            # argparse hides the number of operands while it reads them between options
            action.nargs = getattr(action, "save_nargs", action.nargs)
            if action.required or not action.option_strings:
                words += [*action.option_strings[-1:], usage._format_args(action, action.dest)]
        self.usage = f"{' '.join(words)} [OPTIONS]"
        last = {name: place for place, name in enumerate(_LAST)}
        self._optionals._group_actions.sort(key=lambda action: last.get(action.option_strings[-1], -1))
        if everything:
            self._action_groups.sort(key=lambda group: group.title == _MORE)
            self.epilog = self._more
            return self.format_help()
        rare = [action for group in self._rare.values() for action in group._group_actions]
        for action in rare:
            action.help = argparse.SUPPRESS
        count = f"{len(rare)} more options" if len(rare) > 1 else "one more option"
        explained = ", with more explanation" if self._more else ""
        return self.format_help() + f"\n`{self.prog} --help all` shows {count}{explained}.\n" * bool(rare)

    def option_of(self, field: str) -> str:
        """Return the option that a field of the library, or a setting that it advises, is here; else the field."""
        action = self._option_string_actions.get(f"--{field.replace('_', '-')}")
        plain = field if action is None else action.option_strings[-1]
        return _ADVICE.get(field) or self.library_names.get(field, plain)

    def error(self, message: str) -> NoReturn:
        """Raise instead of exiting: `main` prints."""
        words = message.split()
        if message.startswith("unrecognized arguments") and words[2].startswith("-"):
            options = [name for action in self._actions for name in action.option_strings]
            message = f"unknown option {words[2]}.{nearest(words[2], [*options, *self.elsewhere()])}"
        if wrong := re.fullmatch(r"argument (?:.*/)?(-\S+): invalid (int|float) value: '(.*)'", message):
            option, kind, value = wrong.groups()
            message = f"{option}={value}: must be a {'whole number' if kind == 'int' else 'number'}"
        raise InputError(f"{message.removeprefix('argument ')} (see `{self.prog} --help`)")


def path(text: str) -> Path:
    """Return the path of an argument; a shell leaves the ~ of `--out=~/run` as it is."""
    if not text:
        raise argparse.ArgumentTypeError("is empty; name a file or a folder")
    from spanlm.store.files import expanded

    return expanded(text)


_ADVICE = {
    "as_text=True": "--as-text",
    "corpus=…": "--corpus",
    "data.dir": "--data-dir",
    "oov=flag": "--oov flag",
    "resume=True": "--resume auto",
    "weights=…": "--weights",
}
"""Settings that messages of the library advise, and their options."""


def in_options(note: str) -> str:
    """Return a note of the library with the running verb's options in place of fields."""
    parser = VerbParser.current
    return note if parser is None or not isinstance(note, Note) else told(note.marked, parser.option_of)


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
        logger.setLevel(logging.INFO)  # type: ignore[union-attr]  # notes of the library, which Python users do not see
    print_plainly()
    VerbParser.current = None
    try:
        status = _dispatch(arguments)
        sys.stdout.flush()  # here, where a reader that is gone is no error
        return status
    except SpanlmError as error:
        message = error.told(str if VerbParser.current is None else VerbParser.current.option_of)
        return _failed(" ".join(message.split()), error.exit_status)
    except KeyboardInterrupt:
        stop_at_once(loading=True)  # a second one
        return _failed("stopped", 128 + signal.SIGINT)
    except BrokenPipeError:
        # the reader of our output is gone (`| head`): print nothing, and keep the interpreter from flushing into it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except (MemoryError, RuntimeError, ImportError) as error:
        if not isinstance(error, MemoryError) and not _NO_MEMORY.search(str(error)):
            raise
        why = str(error).partition("\n")[0] or "the system gives no more"
        return _failed(f"out of memory: {why}. Take smaller sizes.", 1)
    except OSError as error:
        return _failed(f"{error.filename or 'input or output'}: {error.strerror or error}", 1)
    finally:
        stop_at_once(loading=program)  # where nothing is left to do but to end


_NO_MEMORY = re.compile("allocat|could not create a primitive|bad_alloc|start new thread|failed to map segment")
"""In what torch, for any device, its kernels, C++, Python and the loader of libraries say."""


def _failed(message: str, status: int) -> int:
    print(f"spanlm: {message}", file=sys.stderr)
    return status


def _set_environment() -> None:
    """Set what torch and GNU's OpenMP read when they are loaded, unless the user has.

    Threads that wait for others give up the processor soon. By default they spin for milliseconds, at every one of the
    hundreds of products of a step, and where other work has the processor, what they wait for cannot run
    (results/speed.md). And torch's profiler writes nothing to standard error when it begins and ends.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")


class _Plain:
    """A stream to a terminal that escapes control characters; what draws on the terminal writes to `terminal`."""

    def __init__(self, terminal: TextIO) -> None:
        self.terminal = terminal

    def write(self, text: str) -> int:
        return self.terminal.write(visible(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.terminal, name)


def print_plainly() -> None:
    """Escape characters that the encoding lacks or a terminal obeys; write nothing to a closed stream (`>&-`)."""
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
    module = importlib.import_module(f"spanlm.cli.{verb}")
    stop_at_once(loading=False)
    try:
        module.run(rest)
    except SystemExit as stop:  # a parser printed its help
        return int(stop.code or 0)
    return 0
