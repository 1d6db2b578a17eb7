"""A trained model whose gate has another temperature in evaluation than it was configured with (Li et al., 2020)."""

from __future__ import annotations

from dataclasses import replace

from spanlm.errors import InputError
from spanlm.evaluation.dynamic_statistics import statistics_name
from spanlm.models.language_model import LanguageModel
from spanlm.models.memories import AnyMemoryConfig, SpanBufferConfig
from spanlm.models.memories.span_buffer import require_temperature
from spanlm.runs.trained_model import TrainedModel


def gated(memory: AnyMemoryConfig, what: str) -> SpanBufferConfig:
    """Return the configuration of a memory with a gate.

    Args:
        memory: of the model.
        what: is asked for.

    Raises:
        InputError: it has none.
    """
    if not isinstance(memory, SpanBufferConfig):
        raise InputError(
            f"{what}: this model has no gate (model.memory.kind={memory.kind}). Train one with "
            "model.memory.kind=span_buffer."
        )
    return memory


class TemperedModel(TrainedModel):
    """The same weights, and λ̂ ∝ exp(W_g h_t / T) with another T.

    Its statistics for dynamic evaluation are of the likelihood at that T, as all that is evaluated is; they have a file
    of their own in the run's folder.

    Attributes:
        own: the run's own evaluation temperature.
        temperature: T.
    """

    def __init__(self, trained: TrainedModel, temperature: float, field: str = "gate_temperature") -> None:
        """Copy a model.

        Args:
            trained: one model, no ensemble.
            temperature: T.
            field: what it is called in errors.

        Raises:
            InputError: the model has no gate, or T is below 1e-6 or not finite.
        """
        require_temperature(temperature, field)
        memory = gated(trained.config.model.memory, field)
        rooms = replace(trained.config.model, memory=memory.at_temperature(temperature))
        model = LanguageModel(rooms, len(trained.vocabulary))
        model.load_state_dict(trained.model.state_dict())
        model.to(trained.model.device).eval()
        super().__init__(model, trained.vocabulary, replace(trained.config, model=rooms), trained.folder)
        self.own, self.temperature = memory.gate.evaluation_temperature, temperature
        self.statistics_file = statistics_name(None if temperature == self.own else float(temperature))
