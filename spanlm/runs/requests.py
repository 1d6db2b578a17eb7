"""Requests to a model: a frozen dataclass per method, whose fields are the arguments in Python and elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import field
from functools import wraps
from inspect import Parameter, signature
from pathlib import Path
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from spanlm.data.cbt import Defect, Question
from spanlm.data.config import CONVENTIONS, Part
from spanlm.data.corpora import Corpus
from spanlm.data.text import Text
from spanlm.errors import require
from spanlm.options import Precision, option, options
from spanlm.scoring.dynamic.statistics import DynamicStatistics
from spanlm.scoring.dynamic.tuning import FINALISTS, FIRST_TOKENS
from spanlm.scoring.neighbours import Datastore
from spanlm.scoring.options import (
    SPELL_UNKNOWN,
    CacheConfig,
    CacheGrid,
    ClozeOptions,
    DynamicConfig,
    DynamicGrid,
    GenerationOptions,
    NeighboursConfig,
    NeighboursGrid,
    ScoreOptions,
    State,
)
from spanlm.scoring.stream import Report, quiet

if TYPE_CHECKING:
    from spanlm.runs.model import Model

P = ParamSpec("P")
Request = TypeVar("Request")
AnyModel = TypeVar("AnyModel", bound="Model")
Result = TypeVar("Result")


def fields_as_keywords(
    request: Callable[P, Request],
) -> Callable[[Callable[[AnyModel, Request], Result]], Callable[Concatenate[AnyModel, P], Result]]:
    """Turn a method that takes a request into one that takes the request's fields, typed and with defaults."""

    def decorate(method: Callable[[AnyModel, Request], Result]) -> Callable[Concatenate[AnyModel, P], Result]:
        arguments, self_parameter = signature(request), Parameter("self", Parameter.POSITIONAL_ONLY)

        @wraps(method)
        def call(self: AnyModel, /, *args: P.args, **fields: P.kwargs) -> Result:
            arguments.bind(*args, **fields)  # a TypeError then names the method, not the dataclass
            return method(self, request(*args, **fields))

        result = signature(method).return_annotation
        shown = arguments.replace(parameters=[self_parameter, *arguments.parameters.values()], return_annotation=result)
        call.__signature__ = shown  # type: ignore[attr-defined]  # for `help`
        return call

    return decorate


@options()
class Score(ScoreOptions):
    """Arguments of `score`."""

    text: str | Path | Text | Iterable[str] = option(
        "one string, cut at its line ends; lines; or a file of any size, by its `Path`", kw_only=False
    )
    cache: CacheConfig | None = option(
        "a neural cache to mix in, which begins anew where the context does", default=None
    )
    as_written: bool = option(
        f"read words as they are written, also with models of {', '.join(CONVENTIONS)}", default=False
    )


@options()
class Continue(GenerationOptions):
    """Arguments of `generate`, which continues a `prompt`."""

    prompt: str = field(default="", kw_only=False)


@options()
class Samples(GenerationOptions):
    """Arguments of `samples`, which draws `count` continuations of a `prompt`."""

    count: int = field(kw_only=False)
    prompt: str = field(default="", kw_only=False)


@options()
class Cloze(ClozeOptions):
    """Arguments of `cloze`; `questions` are a file of the Children's Book Test, or come from `read_questions`."""

    questions: str | Path | Iterable[Question | Defect] = field(kw_only=False)


@options()
class OnText:
    """A part of a corpus and how its tokens are counted."""

    corpus: Corpus | str | Path | None = option(
        "a loaded corpus, a name or path (a file is taken whole), or None for the training corpus",
        default=None,
        kw_only=False,
    )
    split: Part = option("a part of the corpus; of a file that is taken whole: text", default="test", kw_only=False)
    state: State = option(
        "what a word's context is: the whole split (carry), its document, its line; auto: as in training",
        default="auto",
    )
    precision: Precision = option("precision of matrix products", default="fp32")


@options()
class InStreams(OnText):
    """The same, read in `batch_size` streams side by side; None: as many as leave the result unchanged."""

    batch_size: int | None = None


@options()
class OnValid(OnText):
    """A part for choosing settings, never the one to report."""

    split: Part = field(default="valid", kw_only=False)


@options()
class ValidInStreams(OnValid, InStreams):
    """The same, read in streams side by side."""


@options()
class OpenVocabulary(InStreams):
    """The same, with a cost for the spelling of unknown words."""

    spell_unknown: bool = option(SPELL_UNKNOWN, default=False)


@options()
class Evaluate(OpenVocabulary):
    """Arguments of `evaluate`; a cache, `neighbours` and `dynamic` exclude each other."""

    cache: CacheConfig | None = option(
        "mix in a neural cache; the result also has the numbers without it", default=None
    )
    dynamic: DynamicConfig | None = option(
        "let the weights follow the text; the result also has the numbers with the trained weights", default=None
    )
    statistics: DynamicStatistics | None = option(
        "gradient statistics; by default those of `dynamic_statistics`, which may take long", default=None
    )
    neighbours: NeighboursConfig | None = option(
        "mix in nearest neighbours of the training text; the result also has the numbers without them", default=None
    )
    datastore: Datastore | None = option(
        "the states of the training text; by default those of `datastore`, which may take long", default=None
    )
    report: Report = option("called with the progress", default=quiet)

    def __post_init__(self) -> None:
        known = self.dynamic is None or isinstance(self.dynamic, DynamicConfig)
        require(known, "dynamic", self.dynamic, "a DynamicConfig, or None")
        known = self.neighbours is None or isinstance(self.neighbours, NeighboursConfig)
        require(known, "neighbours", self.neighbours, "a NeighboursConfig, or None")


@options()
class Windows:
    """The windows of caches to try."""

    windows: Sequence[int] = field(kw_only=False)


@options()
class TuneCache(OnValid, CacheGrid, Windows):
    """Arguments of `tune_cache`, which tries all combinations of `windows`, `thetas` and `lambdas`.

    `over_lines`: if each line is its own context, the cache still carries over from line to line.
    """

    over_lines: bool = True


@options()
class TuneNeighbours(OnValid, NeighboursGrid):
    """Arguments of `tune_neighbours`, which tries all combinations of `temperatures` and `lambdas` for one `k`."""

    datastore: Datastore | None = option(
        "the states of the training text; by default those of `datastore`", default=None
    )
    report: Report = option("called with the progress", default=quiet)

    def __post_init__(self) -> None:
        NeighboursGrid.__post_init__(self)  # of two bases with checks, Python would call those of the first alone


@options()
class TuneDynamic(OnValid, DynamicGrid):
    """Arguments of `tune_dynamic`."""

    also: Sequence[DynamicConfig] = option("more points", default=())
    first_tokens: int = option("number of tokens that every point reads", default=FIRST_TOKENS)
    finalists: int = option(
        "number of points that then read all of the text, more if none of them helps; 0: none", default=FINALISTS
    )
    statistics: DynamicStatistics | None = option(
        "gradient statistics; by default those of `dynamic_statistics`", default=None
    )
    report: Report = option("called with the progress", default=quiet)
