"""One or more small configurations of every registered room, each memory's reach, and what tests do with them.

A kind that is registered without an entry here stops the collection: the contract tests must cover it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import one_hot, pad
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from spanlm.models.encoders import (
    ENCODERS,
    AWDLSTMConfig,
    DeltaConfig,
    HORNNConfig,
    LSTMBlocksConfig,
    LSTMConfig,
    MinGRUConfig,
    MogrifierLSTMConfig,
    RNNConfig,
    TransformerConfig,
    VariationalLSTMConfig,
)
from spanlm.models.heads import HEADS, MixtureOfSoftmaxesConfig, SoftmaxConfig
from spanlm.models.interfaces import Init, LMState, Memory, MixingHead, Readout, Tensors
from spanlm.models.language_model import LanguageModel, ModelConfig
from spanlm.models.memories import (
    MEMORIES,
    AttentiveConfig,
    KeyValueConfig,
    NGramConfig,
    NoMemoryConfig,
    PointerSentinelConfig,
    RecurrentMemoryConfig,
    SpanBufferConfig,
)
from spanlm.models.memories.pointer_sentinel import Pointer
from tests.cases import rest_slow
from tests.models.template import MeanConfig

ON_GPU = [pytest.mark.cuda, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")]
every_device = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=ON_GPU)])
HIDDEN = 12  # 1, 2, 3 and 4 parts divide it
EMBEDDING = 5
VOCABULARY = 11

UNBOUNDED = 100
"""The reach of a memory without a limit: more than any test has steps."""


@dataclass(frozen=True)
class Kind:
    """Small configurations of a kind of memory, and what tells it from others in the contract tests."""

    small: list[Any]
    reach: Callable[[Any], int] = lambda config: config.window
    """How many steps back it can look."""
    outputs: bool = True
    """It looks back at what the encoder wrote."""
    words: bool = False
    """It looks back at words."""
    spans: Callable[[Any, int], list[tuple[int, int]]] | None = None
    """How many steps before a step of a new stream each span begins and ends, the newest first; None: all are read."""
    blind: Callable[[Any], bool] = lambda config: False
    """Its weights need not change with the word of their step: they know nothing of it, or there is one."""
    shown: Callable[[Any], set[str]] = lambda config: set()
    """Tensors of the state that the attention follows from, but not the answer."""


def span_ends(config: Any, step: int) -> list[tuple[int, int]]:
    length = 1 if config.words else config.span_length
    newest = config.newest == "before"
    ends = [newest + length * n for n in range(config.buffer_size // length)]
    return [(end + length - 1, end) for end in ends if end + length - 1 <= step]


def attentive_reach(config: Any) -> int:
    if config.score == "none":
        return 0
    return UNBOUNDED if config.window is None else config.window - config.includes_current


def summed(config: Any) -> bool:
    """The answer has running sums, for which nothing but these is carried."""
    return config.score in ("single", "mean") and config.slots is None


KINDS: dict[str, Kind] = {
    "none": Kind([NoMemoryConfig()], reach=lambda c: 0),
    "key_value": Kind(
        [
            KeyValueConfig(roles=1, window=3),
            KeyValueConfig(roles=2, window=4),
            KeyValueConfig(roles=3, window=1),
            KeyValueConfig(roles=3, window=5),
            KeyValueConfig(roles=1, window=4, recency="linear"),
            KeyValueConfig(roles=2, window=3, recency="learned"),
        ]
    ),
    "ngram": Kind([NGramConfig(order=2), NGramConfig(order=4)], reach=lambda c: c.order - 1),
    "attentive": Kind(
        [
            *(
                AttentiveConfig(score=score, window=window, merge_bias=bias)
                for score in ("single", "combined")
                for window, bias in ((None, True), (5, False))
            ),
            # these have all paths but their scores in common with the single one
            *(AttentiveConfig(score="mean"), AttentiveConfig(score="mean", window=3)),
            AttentiveConfig(score="single", includes_current=True),
            AttentiveConfig(score="single", window=4, includes_current=True, merge="context", merge_bias=False),
            AttentiveConfig(score="none"),
            AttentiveConfig(score="combined", recency="learned"),
        ],
        reach=attentive_reach,
        blind=lambda c: c.score == "mean",
        shown=lambda c: {"scores", "filled"} if summed(c) else set(),
    ),
    "recurrent_memory": Kind(
        [
            RecurrentMemoryConfig(window=1),
            RecurrentMemoryConfig(window=4),
            RecurrentMemoryConfig(window=3, temporal=False),
            RecurrentMemoryConfig(window=5, composition="linear"),
        ],
        reach=lambda c: c.window - 1,
        outputs=False,
        words=True,
    ),
    "pointer_sentinel": Kind(
        [PointerSentinelConfig(window=window) for window in (1, 4, 12)], reach=lambda c: c.window - 1, words=True
    ),
    "span_buffer": Kind(
        [
            SpanBufferConfig(buffer_size=6, span_length=3),
            SpanBufferConfig(buffer_size=2, span_length=2),
            SpanBufferConfig(buffer_size=4, words=True),
            SpanBufferConfig(buffer_size=6, span_length=3, newest="current"),
            SpanBufferConfig(buffer_size=3, words=True, newest="current"),
            SpanBufferConfig(buffer_size=4, span_length=2, reads="merge"),
        ],
        reach=lambda c: max(map(max, span_ends(c, 10 * c.buffer_size))),
        spans=span_ends,
        blind=lambda c: True,  # all that it was read at a step may be one span
    ),
}
KINDS["mean"] = Kind([MeanConfig(window=1), MeanConfig(window=4)], blind=lambda c: True)  # of docs/memory_template.py
SMALL_MEMORIES = {name: kind.small for name, kind in KINDS.items()}
SMALL_ENCODERS: dict[str, list[Any]] = {
    "lstm": [LSTMConfig(hidden_size=HIDDEN), LSTMConfig(hidden_size=HIDDEN, layers=2)],
    "variational_lstm": [
        VariationalLSTMConfig(hidden_size=HIDDEN, input_dropout=0.3, recurrent_dropout=0.4),
        VariationalLSTMConfig(hidden_size=HIDDEN, layers=2, zoneout_h=0.2, zoneout_c=0.3),
    ],
    "awd_lstm": [
        AWDLSTMConfig(hidden_size=7, layers=3, last_size=HIDDEN, hidden_dropout=0.3, weight_drop=0.4),
        AWDLSTMConfig(hidden_size=7, layers=1, last_size=HIDDEN),
    ],
    "transformer": [
        TransformerConfig(hidden_size=HIDDEN, layers=2, heads=3, window=3),
        TransformerConfig(hidden_size=HIDDEN, layers=1, heads=5, window=9, feedforward_size=5),
    ],
    "rnn": [RNNConfig(hidden_size=HIDDEN), RNNConfig(hidden_size=HIDDEN, layers=2)],
    "hornn": [
        HORNNConfig(hidden_size=HIDDEN, order=3),
        HORNNConfig(hidden_size=HIDDEN, order=2, forgetting_factor=1.0),
        HORNNConfig(hidden_size=HIDDEN, order=3, pooling="gated"),
        HORNNConfig(hidden_size=HIDDEN, order=4, pooling="max"),
        HORNNConfig(hidden_size=HIDDEN, order=2, pooling="gated", newest_apart=True),
    ],
    "mogrifier_lstm": [
        MogrifierLSTMConfig(hidden_size=HIDDEN),
        MogrifierLSTMConfig(hidden_size=HIDDEN, layers=2, rounds=2, rank=3),
    ],
    "lstm_blocks": [LSTMBlocksConfig(hidden_size=HIDDEN)],
    "min_gru": [
        MinGRUConfig(hidden_size=HIDDEN),
        MinGRUConfig(hidden_size=HIDDEN, layers=1, expansion=2, feedforward_size=5),
    ],
    "delta": [
        DeltaConfig(hidden_size=HIDDEN, layers=1),
        DeltaConfig(hidden_size=HIDDEN, heads=2, head_size=3),
    ],
}
SMALL_HEADS: dict[str, list[Any]] = {
    "softmax": [
        *(SoftmaxConfig(tied=tied, bias=bias) for tied in (False, True) for bias in (True, False)),
        SoftmaxConfig(tied=True, projection=True, projection_penalty=0.1),
    ],
    "mixture_of_softmaxes": [
        MixtureOfSoftmaxesConfig(experts=3),
        MixtureOfSoftmaxesConfig(experts=1, bias=False),
        MixtureOfSoftmaxesConfig(experts=4, tied=False),
        MixtureOfSoftmaxesConfig(experts=2, tied=False, bias=False, latent_size=3),
    ],
}


def memories() -> list[Any]:
    return _params("MEMORIES", {**MEMORIES, "mean": MeanConfig}, SMALL_MEMORIES)


def encoders() -> list[Any]:
    return _params("ENCODERS", ENCODERS, SMALL_ENCODERS)


def heads() -> list[Any]:
    return _params("HEADS", HEADS, SMALL_HEADS)


def models(**changes: Any) -> list[Any]:
    """Parameters: every memory, every encoder and every head at least once in a whole model."""
    plain = SMALL_ENCODERS["lstm"][0], SMALL_MEMORIES["key_value"][3], SMALL_HEADS["softmax"][0]
    rooms = [(plain[0], p.values[0], plain[2], p.id) for p in memories()]
    rooms += [(p.values[0], plain[1], plain[2], p.id) for p in encoders()]
    rooms += [(plain[0], plain[1], p.values[0], p.id) for p in heads()]
    return [pytest.param(model_config(e, m, h, **changes), id=name) for e, m, h, name in rooms]


def one_of_each_kind(cases: Sequence[Any]) -> list[Any]:
    """Parameters: of each registered kind the first small configuration always, the others by `-m slow`."""
    return rest_slow(cases, kind=lambda case: case.id.split("-")[0])


def model_config(encoder: Any, memory: Any, head: Any, **changes: Any) -> ModelConfig:
    """A model whose embedding is as wide as the readout if the head needs that."""
    width = encoder.output_size // memory.parts if head.binds_width else EMBEDDING
    return ModelConfig(embedding_size=width, encoder=encoder, memory=memory, head=head, **changes)


def _params(name: str, registry: Mapping[str, type], small: Mapping[str, Sequence[Any]]) -> list[Any]:
    for kind, config in registry.items():
        assert small.get(kind), f"{name}[{kind!r}] has no configuration in {__file__}: nothing would test it"
        assert all(type(c) is config and c.kind == kind for c in small[kind])
    return [pytest.param(c, id=identify(c)) for kind in registry for c in small[kind]]


def identify(config: Any) -> str:
    """`ngram-order=4`: the kind and what differs from the defaults."""
    default = type(config)()
    names = [f.name for f in fields(config) if getattr(config, f.name) != getattr(default, f.name)]
    return "-".join([config.kind, *(f"{name}={getattr(config, name)}" for name in names)])


def values(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    """Standard normal numbers, the same on every call."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def words(*shape: int, seed: int = 0, size: int = VOCABULARY) -> Tensor:
    return torch.randint(size, shape, generator=torch.Generator().manual_seed(seed))


def build(config: Any, *arguments: Any, init_range: float = 0.7) -> Any:
    """Build a room in float64; the wide init makes every nonlinearity matter."""
    torch.default_generator.manual_seed(0)  # torch.manual_seed also keeps a call stack for a GPU that may come
    return config.build(*arguments, Init(init_range, init_range)).double().eval()


def words_at(h: Tensor, size: int = VOCABULARY) -> Tensor:
    """Words (T, B) that follow from the outputs they stand beside, so that any cut of h cuts its words alike."""
    return (h.detach()[..., 0].nan_to_num().double() * 1e3).long().remainder(size)


def read(memory: Memory, h: Tensor, state: Tensors) -> tuple[Readout, Tensors]:
    return memory(h, words_at(h), state)


def language_model(config: ModelConfig, dtype: torch.dtype = torch.float64) -> LanguageModel:
    """Build a whole model in evaluation mode, its weights spread wider than the configuration says."""
    torch.default_generator.manual_seed(0)
    model = LanguageModel(config, VOCABULARY).to(dtype).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(5)
    return model


class Given(MixingHead):
    def __init__(self, log_p: Tensor) -> None:
        super().__init__()
        self.log_p = log_p

    def own_log_prob(self, features: Tensor, targets: Tensor, *, mixed: bool = False) -> Tensor:
        return self.log_p.gather(-1, targets.unsqueeze(-1)).squeeze(-1)

    def own_log_probs(self, features: Tensor) -> Tensor:
        return self.log_p


def join(readouts: Sequence[Readout]) -> Readout:
    """One readout of segments in a row; their attention may reach back ever farther."""
    features = torch.cat([r.features for r in readouts])
    attention, mixture = readouts[0].attention, readouts[0].mixture
    if attention is not None:
        weights = [r.attention.weights for r in readouts if r.attention is not None]
        widest = max(x.shape[-1] for x in weights)
        attention = replace(attention, given=torch.cat([pad(x, (widest - x.shape[-1], 0)) for x in weights]))
    if mixture is not None:
        pieces = list(map(mixture_tensors, readouts))
        joined = iter([torch.cat(same) for same in zip(*pieces, strict=True)])
        mixture = mixture.map(lambda _: next(joined))
    return Readout(features, attention, mixture)


def mixture_tensors(readout: Readout) -> list[Tensor]:
    found: list[Tensor] = []
    if readout.mixture is not None:
        readout.mixture.map(lambda x: found.append(x) or x)  # type: ignore[func-returns-value]
    return found


def copied(pointer: Pointer) -> Tensor:
    """(T, B, VOCABULARY): what the pointer gives to each word."""
    return (one_hot(pointer.words, VOCABULARY) * pointer.log_weights.exp().unsqueeze(-1)).sum(-2)


def mixed(readout: Readout) -> list[Tensor]:
    """What a mixture is made of: its numbers, and its words; a pointer's words by what each of them is given."""
    if isinstance(readout.mixture, Pointer):
        return [copied(readout.mixture), readout.mixture.log_gate]
    numbers = [x for x in mixture_tensors(readout) if x.dtype != torch.bool]
    return [x if x.is_floating_point() else one_hot(x, VOCABULARY).to(readout.features) for x in numbers]


def tensors(result: Readout | LMState | Tensors | Tensor | list[Tensor]) -> list[Tensor]:
    if isinstance(result, list):
        return result
    if isinstance(result, Tensor):
        return [result]
    if isinstance(result, Readout):
        attended = [] if result.attention is None else [result.attention.weights]
        return [result.features, *attended, *mixed(result)]
    named = result.flat() if isinstance(result, LMState) else result
    return [named[name] for name in sorted(named)]


def assert_same(actual: Any, expected: Any, *, rtol: float = 1e-10, atol: float = 1e-12) -> None:
    """All tensors agree to rounding in float64; booleans exactly."""
    actual, expected = tensors(actual), tensors(expected)
    torch.testing.assert_close(actual, expected, rtol=rtol, atol=atol)


def bitwise(actual: Any, expected: Any) -> bool:
    pairs = zip(tensors(actual), tensors(expected), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


class Largest(TorchDispatchMode):
    """Notes how many elements the largest tensor has that anything inside makes, forwards or backwards.

    A view counts what it shows of its memory, and no more than that: words repeated for every window hold nothing.
    """

    elements = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        for x in tree_leaves(result):
            if isinstance(x, Tensor):
                held = x.untyped_storage().nbytes() // x.element_size()
                self.elements = max(self.elements, min(x.numel(), held))
        return result


def reach(config: Any) -> int:
    return KINDS[config.kind].reach(config)


def looked_at(config: Any, step: int) -> set[int]:
    """The lags at which `step` of a new stream looks at what the encoder wrote; its own is one."""
    kind = KINDS[config.kind]
    if kind.spans is not None:
        return {lag for lag in {0}.union(*kind.spans(config, step)) if lag <= step}
    return set(range(min(reach(config), step) + 1)) if kind.outputs else {0}


def attended(config: Any, step: int, nearest_lag: int) -> set[int]:
    """The lags that attention gives weight to at `step` of a new stream; a span's is that of its end."""
    spans = KINDS[config.kind].spans
    if spans is not None:
        return {end for _, end in spans(config, step)}
    return set(range(nearest_lag, min(reach(config), step) + 1))


every_memory = pytest.mark.parametrize("config", memories())


def only(which: Callable[[Memory], bool]) -> Any:
    """Parametrise over the memories that are `which`."""
    chosen = [p for p in memories() if which(build(p.values[0], HIDDEN, VOCABULARY))]
    assert chosen
    return pytest.mark.parametrize("config", chosen)


def attends(memory: Memory) -> bool:
    return read(memory, values(1, 1, HIDDEN), memory.init_state(1))[0].attention is not None


def answer(readout: Readout) -> Tensor:
    """What the memory does to the prediction: the features; of a mixture, numbers that all change where it does."""
    if readout.mixture is None:
        return readout.features
    parts = mixed(readout) if isinstance(readout.mixture, Pointer) else [readout.features, *mixed(readout)]
    both = torch.cat([x.reshape(*x.shape[:2], -1) for x in parts], -1)
    return both @ values(both.shape[-1], 4, seed=3)


def after_prefix(memory: Memory, steps: int, batch: int = 2) -> Tensors:
    """State of streams that have read `steps` steps, without a graph."""
    state = memory.init_state(batch)
    if steps:
        _, state = read(memory, values(steps, batch, HIDDEN, seed=50), state)
    return {name: x.detach() for name, x in state.items()}
