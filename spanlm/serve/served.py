"""Runs as they are served: loaded once, asked by many threads, described for /api/models."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from spanlm.config import RunConfig
from spanlm.errors import InputError
from spanlm.evaluation.attention import check_attends
from spanlm.evaluation.protocol import KINDS, Context
from spanlm.models.counting import count_parameters
from spanlm.models.interfaces import NextWordModel
from spanlm.models.language_model import ModelConfig
from spanlm.models.lesions import require_lesion
from spanlm.models.memories import NoMemoryConfig, PointerSentinelConfig, SpanBufferConfig
from spanlm.presets import PRESETS
from spanlm.runs.about import about, finite_perplexity
from spanlm.runs.loading import load
from spanlm.runs.model import Model, TrainedModel, require_weights
from spanlm.serve.examples import examples_for
from spanlm.serve.remembering import Memo, Remembering
from spanlm.serve.work import held, stop_if_left
from spanlm.store.run_folder import epoch_rows

REMEMBERED = 256 * 2**20
"""Bytes of what was read, of all runs together."""

_MIXED = "p̃ = λ̂ q({seen}) + (1 − λ̂) p(h_t)   (9),  each of them  "
COUNTED: dict[Context, str] = {
    "carry": "state carried throughout",
    "document": "state reset at each document",
    "line": "state reset at each line",
}
LESIONS = 3
"""Models with a lesion that are kept; each has weights of its own."""


class Served:
    """One run: its `model`, by `id`, and what it can be asked."""

    def __init__(self, id: str, name: str, model: Model, memo: Memo) -> None:
        self.id, self.name, self.model, self._memo = id, name, model, memo
        self._lesions, self._lock = OrderedDict[str, Model](), threading.Lock()
        # a tokenizer of Hugging Face may be asked by one thread at a time, and tables are read when they are asked for
        self._alone = None if isinstance(model, TrainedModel) else threading.Lock()
        model.model.register_forward_pre_hook(stop_if_left)

    @contextmanager
    def asked(self, attention: str | None = None) -> Iterator[Model]:
        """Give the model, with a lesion if one is named; InputError: it can have no such lesion."""
        with nullcontext() if self._alone is None else held(self._alone):
            model = self.model if attention is None else self._lesioned(attention)
            if isinstance(model, TrainedModel):
                model = model.with_network(Remembering(model.model, self._memo, f"{self.id} {attention}"))
            yield model

    def _lesioned(self, attention: str) -> Model:
        require_lesion(attention)
        with self._lock:
            known = self._lesions.pop(attention, None)
            if known is None:
                known = require_weights(self.model, f"attention={attention}").with_attention(attention)
                known.model.register_forward_pre_hook(stop_if_left)
            self._lesions[attention] = known
            if len(self._lesions) > LESIONS:
                self._lesions.popitem(last=False)
            return known

    @cached_property
    def config(self) -> RunConfig | None:
        """The configuration of a training; None: it is no training of ours."""
        return self.model.config if isinstance(self.model, TrainedModel) else None

    @cached_property
    def attends(self) -> bool:
        """Whether it looks at something."""
        if self.config is None:
            return False
        try:
            check_attends(self.model.model)
        except InputError:
            return False
        return True

    @cached_property
    def has_spans(self) -> bool:
        """Whether it looks at spans."""
        return isinstance(self.model, TrainedModel) and self.model.has_spans

    @cached_property
    def states(self) -> list[Context]:
        """Return what a word's context can be."""
        found: list[Context] = []
        for state in ("line", "carry", "document"):
            with suppress(InputError):
                self.model.texts.refuse_context(state)
                found.append(state)
        return found

    @cached_property
    def state(self) -> Context:
        """A word's context as in training, or its line where that is not known."""
        kinds: dict[str, Context] = {kind: context for context, kind in KINDS.items()}
        trained = kinds.get(self.model.texts.reading().get("training.batching.kind", ""), "line")
        return trained if trained in self.states else "line"

    @cached_property
    def lesions(self) -> list[str]:
        """The lesions that a page offers: of windows the nearest slot alone and halves of all."""
        if not self.attends or self.config is None:
            return []
        slots = self.config.model.memory.slots
        nearest = [1, 2, 5, 10] if slots is None else sorted({1, *(slots // part for part in (8, 4, 2))} - {0, slots})
        return ["uniform", "none", *(f"window={count}" for count in nearest)]

    @cached_property
    def described(self) -> dict[str, Any]:
        """What /api/models says of it."""
        memory, what = None if self.config is None else self.config.model.memory, about(self.model)
        # how a training counts valid, as `spanlm evaluate` says it
        protocol = f"best epoch; every token predicted once, <eos> counted; {COUNTED[self.state]}"
        corpus = None if self.config is None else Path(self.config.data.corpus).name
        best = {"split": "valid", "value": what.perplexity, "protocol": protocol}
        return {
            "id": self.id,
            "name": self.name,
            "description": self.model.description,
            "memory": what.memory if memory is not None else None,
            "tokenizer": self.model.texts.data.effective_tokenizer,
            "corpus": what.corpus,
            "paper": what.paper,
            "preset": self._preset(),
            "parameters": count_parameters(self.model.model).total or None,
            "vocabulary_size": len(self.model.vocabulary),
            "perplexity": None if what.perplexity is None else best,
            "nearest_lag": getattr(memory, "nearest_lag", 1) if self.attends else None,
            "window": memory.slots if memory is not None and self.attends else None,
            "attends": ("spans" if self.has_spans else "words") if self.attends else None,
            "lesions": self.lesions,
            "gates": isinstance(memory, SpanBufferConfig | PointerSentinelConfig),
            "caches": isinstance(self.model.model, NextWordModel),
            "states": self.states,
            "state": self.state,
            "diagram": None if self.config is None else diagram(self.config.model, len(self.model.vocabulary)),
            "curves": self._curves(),
            "examples": examples_for(corpus),
        }

    def _preset(self) -> str | None:
        """Return the preset whose model it is, if there is one, whatever the text."""
        if self.config is None:
            return None
        return next((name for name, preset in PRESETS.items() if preset.config.model == self.config.model), None)

    def _curves(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        with suppress(InputError):  # a run without its log is still a run
            rows = [row for row in epoch_rows(self.model.folder) if "epoch" in row]  # an n-gram model has none
        times = [_time(row.get("time")) for row in rows]
        began = next((time for time in times if time is not None), 0.0)
        return [
            {
                "epoch": row["epoch"],
                "seconds": None if time is None else round(time - began, 1),
                "train": finite_perplexity(row.get("train_loss")),
                "valid": valid,
            }
            for row, time in zip(rows, times, strict=True)
            if (valid := finite_perplexity(row.get("loss"))) is not None
        ]


def _time(written: object) -> float | None:
    with suppress(ValueError):
        return datetime.fromisoformat(written).timestamp() if isinstance(written, str) else None
    return None


class Runs:
    """The runs of a server by their ids; empty while the only one is being trained."""

    def __init__(self) -> None:
        self._memo, self._served = Memo(REMEMBERED), dict[str, Served]()
        self.progress: str | None = None

    def add(self, name: str, device: str) -> Served:
        """Load a run; errors as of `spanlm.load`."""
        model = load(name, device)
        served = Served(str(len(self._served) + 1), name, model, self._memo)
        self._served[served.id] = served
        return served

    @property
    def all(self) -> list[Served]:
        """In the order of the command line."""
        return list(self._served.values())

    def get(self, id: str) -> Served:
        """Return a run; InputError: there is none of this id."""
        if id not in self._served:
            raise InputError(f"run={id[:20]!r}: there is no such run; there are {', '.join(self._served)}")
        return self._served[id]


def diagram(config: ModelConfig, vocabulary_size: int) -> dict[str, Any]:
    """Return the picture of a model over so many words: of each part its name, its equation, and its `shape`.

    That is what goes in and what comes out at a step. A model that does not look back has None as memory.
    """
    encoder, memory, head = config.encoder, config.memory, config.head
    read = encoder.output_size // memory.parts
    mixed = _MIXED.format(seen=memory.seen) if isinstance(memory, SpanBufferConfig) else ""
    return {
        "encoder": _room(encoder.description, f"{config.embedding_size} → {encoder.output_size}", encoder.equation),
        "memory": None
        if isinstance(memory, NoMemoryConfig)
        else _room(memory.description, f"{encoder.output_size} → {read}", memory.equation),
        "head": _room(head.description, f"{read} → {vocabulary_size:,} words", mixed + head.equation),
    }


def _room(name: str, shape: str, equation: str) -> dict[str, str]:
    return {"name": name[:1].upper() + name[1:], "shape": shape, "equation": equation}
