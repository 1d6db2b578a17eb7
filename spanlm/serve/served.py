"""The runs of a server: loaded once, used by many threads, described for /api/models."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from datetime import datetime
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Literal

from spanlm.analysis.pages import EXAMPLES
from spanlm.config import RunConfig
from spanlm.errors import InputError, SpanlmError
from spanlm.models.counting import count_parameters
from spanlm.models.language_model import ModelConfig
from spanlm.models.lesions import require_lesion
from spanlm.models.memories import NoMemoryConfig
from spanlm.papers.registry import PRESETS
from spanlm.runs.about import about, finite_perplexity
from spanlm.runs.loading import load
from spanlm.runs.model import Model, TrainedModel, require_weights
from spanlm.scoring.attention import check_attends, has_parts
from spanlm.scoring.options import Context
from spanlm.scoring.protocol import KINDS
from spanlm.serve.remembering import Memo, Remembering
from spanlm.serve.work import held, stop_if_left
from spanlm.store.provenance import last_fact
from spanlm.store.run_folder import epoch_rows

REMEMBERED = 256 * 2**20
"""Most bytes of cached readouts, of all runs together."""

LESIONS = 3
"""Models with a lesion to keep loaded; each is a copy of the weights."""


class Served:
    """One run: its `id` and `model`, and the requests that it supports."""

    def __init__(self, id: str, name: str, model: Model, memo: Memo) -> None:
        self.id: str = id
        self.name: str = name
        self.model: Model = model
        self._memo = memo
        self.config: RunConfig | None = model.config if isinstance(model, TrainedModel) else None
        self._lesioned = lru_cache(LESIONS)(self._with_lesion)
        # tokenizers of Hugging Face and n-gram tables, which are read on demand, are not safe for threads
        self._alone = None if isinstance(model, TrainedModel) else threading.Lock()
        model.model.register_forward_pre_hook(stop_if_left)

    @contextmanager
    def using(self, attention: str | None = None) -> Iterator[Model]:
        """Yield the model, with a lesion if one is named; InputError if the model cannot have it."""
        with nullcontext() if self._alone is None else held(self._alone):
            model = self.model if attention is None else self._lesioned(attention)
            if isinstance(model, TrainedModel):
                network = Remembering(model.model, self._memo, f"{self.id} {attention}")
                network.register_forward_pre_hook(stop_if_left)  # so that cached readings stop, too
                model = model.with_network(network)
            yield model

    def _with_lesion(self, attention: str) -> Model:
        require_lesion(attention)
        model = require_weights(self.model, f"attention={attention}").with_attention(attention)
        model.model.register_forward_pre_hook(stop_if_left)
        return model

    @cached_property
    def attends(self) -> Literal["words", "spans"] | None:
        """Whether the run attends to words or spans; None if it has no attention."""
        with suppress(InputError):
            if self.config is not None and check_attends(self.model.model):
                return "spans" if has_parts(self.model.model) else "words"
        return None

    @cached_property
    def states(self) -> list[Context]:
        """The contexts that the run can read words in."""
        states: list[Context] = []
        for state in ("line", "carry", "document"):
            with suppress(InputError):
                self.model.texts.refuse_context(state)
                states.append(state)
        return states

    @cached_property
    def state(self) -> Context:
        """The context of a word in training; `line` if unknown."""
        kinds: dict[str, Context] = {kind: context for context, kind in KINDS.items()}
        trained = kinds.get(self.model.texts.reading().get("training.batching.kind", ""), "line")
        return trained if trained in self.states else "line"

    @cached_property
    def lesions(self) -> list[str]:
        """The lesions that the page offers: uniform, none, and windows of one slot and of ⅛, ¼ and ½ of all."""
        if not self.attends or self.config is None:
            return []
        slots = self.config.model.memory.slots
        nearest = [1, 2, 5, 10] if slots is None else sorted({1, *(slots // part for part in (8, 4, 2))} - {0, slots})
        return ["uniform", "none", *(f"window={count}" for count in nearest)]

    @cached_property
    def described(self) -> dict[str, Any]:
        """The description of the run in /api/models."""
        model, summary = None if self.config is None else self.config.model, about(self.model)
        memory = None if model is None else model.memory
        protocol = "as `spanlm train` validates"
        with suppress(SpanlmError):  # damaged, which loading does not mind
            protocol = last_fact(self.model.folder, "validation", protocol)
        corpus = None if self.config is None else Path(self.config.data.corpus).name
        best = {"split": "valid", "value": summary.perplexity, "protocol": f"best epoch; {protocol}"}
        return {
            "id": self.id,
            "name": self.name,
            "description": self.model.description,
            "memory": summary.memory if memory is not None else None,
            "tokenizer": self.model.texts.data.effective_tokenizer,
            "corpus": summary.corpus,
            "paper": summary.paper,
            "preset": next((name for name, preset in PRESETS.items() if preset.config.model == model), None),
            "parameters": count_parameters(self.model.model).total or None,
            "vocabulary_size": len(self.model.vocabulary),
            "perplexity": None if summary.perplexity is None else best,
            "nearest_lag": check_attends(self.model.model).nearest_lag if self.attends else None,
            "window": memory.slots if memory is not None and self.attends else None,
            "attends": self.attends,
            "lesions": self.lesions,
            "gates": memory is not None and memory.mixes,
            "caches": self.model.predicts_words,
            "states": self.states,
            "state": self.state,
            "diagram": None if model is None else diagram(model, len(self.model.vocabulary)),
            "curves": self._curves(),
            "examples": EXAMPLES.get(corpus or "", EXAMPLES[""]),
        }

    def _curves(self) -> list[dict[str, Any]]:
        def seconds(written: object) -> float | None:
            with suppress(ValueError, TypeError):
                return datetime.fromisoformat(written).timestamp()  # type: ignore[arg-type]
            return None

        rows: list[dict[str, Any]] = []
        with suppress(InputError):  # the run has lost its log
            rows = [row for row in epoch_rows(self.model.folder) if "epoch" in row]  # none of an n-gram log
        times = [seconds(row.get("time")) for row in rows]
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


class Runs:
    """The runs of a server by id; empty while the demo is being trained."""

    def __init__(self) -> None:
        self._memo, self._served = Memo(REMEMBERED), dict[str, Served]()
        self.progress: str | None = None

    def add(self, name: str, device: str) -> Served:
        """Load and add a run; raises as `spanlm.load`."""
        model = load(name, device)
        served = Served(str(len(self._served) + 1), name, model, self._memo)
        self._served[served.id] = served
        return served

    @property
    def all(self) -> list[Served]:
        return list(self._served.values())

    def get(self, id: str) -> Served:
        if id not in self._served:
            raise InputError("run", f"{id[:20]!r}", f"there is no such run; there are {', '.join(self._served)}")
        return self._served[id]


def diagram(config: ModelConfig, vocabulary_size: int) -> dict[str, Any]:
    """Return the diagram of a model: for each component its name, its equation, and its input and output sizes.

    The memory is None for a model that does not look back.
    """

    def room(name: str, shape: str, equation: str) -> dict[str, str]:
        return {"name": name[:1].upper() + name[1:], "shape": shape, "equation": equation}

    encoder, memory, head = config.encoder, config.memory, config.head
    read = encoder.output_size // memory.parts
    return {
        "encoder": room(encoder.description, f"{config.embedding_size} → {encoder.output_size}", encoder.equation),
        "memory": None
        if isinstance(memory, NoMemoryConfig)
        else room(memory.description, f"{encoder.output_size} → {read}", memory.equation),
        "head": room(head.description, f"{read} → {vocabulary_size:,} words", memory.mixing + head.equation),
    }
