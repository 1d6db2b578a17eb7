"""`spanlm attend RUN`."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

from spanlm.analysis.attend import attention_by_lag, attention_flatness
from spanlm.analysis.compare import RECURRENT_MEMORY, MeasuredLags, check_alike
from spanlm.analysis.export import (
    save_attention,
    save_flatness,
    save_lag_comparison,
    save_lag_profile,
    save_sentence_maps,
)
from spanlm.analysis.sentences import attend_sentence
from spanlm.cli.arguments import corpus_of, run_names
from spanlm.cli.attend_by_epoch import show_by_epoch
from spanlm.cli.attend_options import parsed_options, require_out
from spanlm.cli.attend_spans import check_spans, show_spans, slots_of
from spanlm.cli.attended_text import sentence_of, targets_of
from spanlm.cli.attention_prints import (
    print_flatness,
    print_lags,
    print_lags_of_several,
    print_maps,
    print_sentence_flatness,
)
from spanlm.cli.gate import tempered
from spanlm.cli.terminal import out
from spanlm.config import RunConfig
from spanlm.data.batching import Batcher
from spanlm.data.corpora import Corpus
from spanlm.errors import InputError
from spanlm.evaluation.attention import EXPECTED, AttentionRecord, attend_words, check_attends
from spanlm.models.memories import KeyValueConfig, RecurrentMemoryConfig
from spanlm.runs.loading import load
from spanlm.runs.trained_model import TrainedModel
from spanlm.training.setup import remembers_everything

NEAREST = 15
"""Lags told apart of a memory that grows with the text: as many as the paper's windows have."""


def run(arguments: list[str]) -> None:
    """Attend."""
    options = parsed_options(arguments)
    if options.what == "--by-epoch":
        show_by_epoch(options)
    else:
        _look(options)
    if options.out is not None:
        out(f"wrote {options.out}")


def _look(options: argparse.Namespace) -> None:
    """Show what models look at."""
    models = [tempered(load(folder, options.device), options) for folder in options.runs]
    check_spans(models, options)
    if options.what in _SIDE_BY_SIDE:
        _SIDE_BY_SIDE[options.what](models, options)
    elif models[0].has_spans:
        show_spans(models[0], targets_of(models[0], options), options)
    else:
        require_out(options)
        save_attention(_record(models[0], options), options.out)


def _record(model: TrainedModel, options: argparse.Namespace) -> AttentionRecord:
    """Read what was asked for."""
    text = targets_of(model, options)
    return attend_words(
        model.model,
        model.vocabulary,
        text.words,
        expected=options.top or EXPECTED,
        title=model.title(text.source),
        opened=model.texts.predict_first,
        starts=text.starts,
    )


def _named(models: Sequence[TrainedModel]) -> dict[str, TrainedModel]:
    """Name models that attend to something."""
    for model in models:
        try:
            check_attends(model.model)
        except InputError as error:
            raise InputError(f"{model.folder}: {error}") from None
    return dict(zip(run_names([model.folder for model in models]), models, strict=True))


def _sentences(models: Sequence[TrainedModel], options: argparse.Namespace) -> None:
    """Print the triangles, or write them."""
    named = _named(models)
    sentences = [
        [
            attend_sentence(
                model.model,
                model.vocabulary,
                sentence_of(model, sentence),
                name=name,
                memory=model.config.model.memory.description,
                opened=model.texts.predict_first,
            )
            for name, model in named.items()
        ]
        for sentence in options.sentence
    ]
    if options.out is None:
        print_maps(sentences)
    print_sentence_flatness(sentences)
    if options.out is not None:
        save_sentence_maps(sentences, options.out)


def _flatness(models: Sequence[TrainedModel], options: argparse.Namespace) -> None:
    """Print the tables and write the file."""
    measured = {}
    for name, model in _named(models).items():
        corpus, split = corpus_of(model, options)
        flatness = attention_flatness(model.model, _batcher(model, corpus, split))
        measured[name] = (f"{corpus.name} {split}", flatness)
    print_flatness(measured)
    if options.out is not None:
        save_flatness(measured, options.out)


def _by_lag(models: Sequence[TrainedModel], options: argparse.Namespace) -> None:
    """Print the table and write the file."""
    named = _named(models)
    check_alike({name: slots_of(model) for name, model in named.items()})
    measured = [_measured(model, name, options) for name, model in named.items()]
    if len(measured) == 1:
        print_lags(measured[0])
    else:
        print_lags_of_several(measured)
    if options.out is None:
        return
    if len(measured) == 1 and options.out.suffix.lower() != ".md":
        save_lag_profile(measured[0].profile, options.out, measured[0].model)
    else:
        save_lag_comparison(measured, options.out)


def _measured(model: TrainedModel, name: str, options: argparse.Namespace) -> MeasuredLags:
    corpus, split = corpus_of(model, options)
    nearest = NEAREST if remembers_everything(model.config.model.memory) else None
    profile = attention_by_lag(model.model, _batcher(model, corpus, split), nearest)
    return MeasuredLags(name, f"{corpus.name} {split}", profile, published_name(model.config))


def _batcher(model: TrainedModel, corpus: Corpus, split: str) -> Batcher:
    """Cut a split as the training's text was."""
    return model.texts.protocol(corpus, split).batcher(corpus, split)


_SIDE_BY_SIDE: dict[str, Callable[[Sequence[TrainedModel], argparse.Namespace], None]] = {
    "--by-lag": _by_lag,
    "--flatness": _flatness,
    "--sentence": _sentences,
}
"""What several runs that are loaded can stand side by side with."""


def published_name(config: RunConfig) -> str | None:
    """Return which row of the paper's Figure 3b this model can stand beside."""
    match config.model.memory:
        case KeyValueConfig() as memory:
            return memory.name
        case RecurrentMemoryConfig(temporal=True, composition="gated"):
            return RECURRENT_MEMORY
    return None
