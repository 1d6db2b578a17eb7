"""Encoders against the loops of `tests/reference.py`: outputs, states, gradients, in float64."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from spanlm.models import kernels
from spanlm.models.encoders import (
    AWDLSTMConfig,
    DeltaConfig,
    HORNNConfig,
    LSTMBlocksConfig,
    LSTMConfig,
    MinGRUConfig,
    MogrifierLSTMConfig,
    RNNConfig,
    VariationalLSTMConfig,
    awd_lstm,
    delta,
    stacks,
)
from spanlm.models.encoders.awd_lstm import AWDLSTMEncoder
from spanlm.models.encoders.delta import GatedDelta, delta_rule
from spanlm.models.encoders.hornn import HORNNEncoder
from spanlm.models.encoders.min_gru import recurrence
from spanlm.models.encoders.variational_lstm import VariationalLSTMEncoder
from spanlm.models.interfaces import Tensors
from spanlm.models.ops import dropout
from tests import reference
from tests.cases import rest_slow
from tests.conftest import needs_bf16
from tests.models.small import EMBEDDING, assert_same, bitwise, build, values
from tests.models.twins import assert_twin, branches, layers_of, past_outputs, projected, slots

WIDE, LAST = 6, 4
STEPS, BATCH = 5, 3
NOISY = {"hidden_dropout": 0.3, "weight_drop": 0.4}
KERNELS = ["kernel", "loop"]


def stack(layers: int = 3, hidden_dropout: float = 0.0, weight_drop: float = 0.0) -> AWDLSTMEncoder:
    sizes = {"hidden_size": WIDE, "layers": layers, "last_size": LAST}
    config = AWDLSTMConfig(**sizes, hidden_dropout=hidden_dropout, weight_drop=weight_drop)
    encoder: AWDLSTMEncoder = build(config, EMBEDDING)
    return encoder.train()


def inputs(encoder: AWDLSTMEncoder, steps: int = STEPS, batch: int = BATCH) -> tuple[Tensor, Tensors]:
    """What a segment reads, with a state carried over; all of it gets gradients."""
    zeros = encoder.init_state(batch)
    state = {name: values(*zero.shape, seed=n).requires_grad_() for n, (name, zero) in enumerate(zeros.items(), 1)}
    return values(steps, batch, EMBEDDING).requires_grad_(), state


def matrices(encoder: AWDLSTMEncoder) -> list[nn.Parameter]:
    return [layer.get_parameter("weight_hh_l0") for layer in encoder.layers]


def recorded(monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """What is drawn from now on, in order: masks of units (B, H) and of weights (4H, H)."""
    drawn: list[Tensor] = []
    draw, drop = dropout.dropout_mask, awd_lstm.dropout

    def mask_of_units(*given: Any, streams: int) -> Tensor:
        drawn.append(draw(*given, streams=streams))
        return drawn[-1]

    def mask_of_weights(weight: Tensor, rate: float, training: bool, streams: None) -> Tensor:
        dropped = drop(weight, rate, training, streams)
        if dropped is not weight:
            drawn.append((dropped / weight).detach())
        return dropped

    monkeypatch.setattr(dropout, "dropout_mask", mask_of_units)
    monkeypatch.setattr(awd_lstm, "dropout", mask_of_weights)
    return drawn


def replayed(monkeypatch: pytest.MonkeyPatch, drawn: list[Tensor], device: str) -> None:
    masks = [mask.to(device) for mask in drawn]
    monkeypatch.setattr(dropout, "dropout_mask", lambda *given, **more: masks.pop(0))
    monkeypatch.setattr(awd_lstm, "dropout", lambda weight, *given, **more: weight * masks.pop(0))


def choose(monkeypatch: pytest.MonkeyPatch, kernel: str) -> None:
    """Run every layer as the library does ("kernel"), or as a loop, in whatever type."""
    monkeypatch.setattr(awd_lstm, "loop_is_faster", lambda units, x: kernel == "loop")


SIZE = 3


needs_kernels = pytest.mark.skipif(not kernels.KERNELS, reason="SPANLM_KERNELS=0")


@pytest.mark.parametrize("kind", [*KERNELS, "rnn"])
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize(("steps", "batch"), [(1, 1), (1, 3), (6, 1), (5, 2)])
def test_stacks(steps: int, batch: int, layers: int, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An LSTM by the library's kernel and by the loop, and an RNN."""
    monkeypatch.setattr(stacks, "loop_is_faster", lambda units, x: kind == "loop")
    encoder = build((RNNConfig if kind == "rnn" else LSTMConfig)(hidden_size=4, layers=layers), 3)
    x = values(steps, batch, 3).requires_grad_()
    state = {name: values(layers, batch, 4, seed=n).requires_grad_() for n, name in enumerate(encoder.init_state(1), 1)}
    outputs, after = encoder(x, state)
    if kind == "rnn":
        expected = reference.rnn(x, state["h"], layers_of(encoder.rnn, reference.RNNLayer))
    else:
        expected = reference.lstm(x, state["h"], state["c"], layers_of(encoder.lstm))
    leaves = [x, *state.values(), *[p for p in encoder.parameters() if p.requires_grad]]
    assert_twin([outputs, *(after[name] for name in state)], expected, leaves)


@needs_kernels
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("config", [LSTMConfig(hidden_size=4, layers=2), AWDLSTMConfig(hidden_size=4, last_size=3)])
def test_an_lstm_that_reads_word_by_word_without_a_gradient(
    config: Any, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where text is drawn: a step at a time is not computed by the kernel, which computes a segment."""
    encoder, x = build(config, 3).eval(), values(5, batch, 3)
    zeros = encoder.init_state(batch)
    start = {name: values(*zeros[name].shape, seed=n) for n, name in enumerate(zeros)}
    whole, end = encoder(x, start)
    state, outputs = start, []
    monkeypatch.delattr(torch, "lstm")
    with torch.no_grad():
        for step in x.split(1):
            output, state = encoder(step, state)
            outputs.append(output)
    assert_same([torch.cat(outputs), *state.values()], [whole, *end.values()])


@needs_kernels
def test_the_kernel_reads_what_is_more_or_learns() -> None:
    """The cell reads a word at a time of few streams, on a CPU, in its own type, without gradients."""
    with torch.no_grad():
        assert kernels.one_step_of_few(torch.empty(1, kernels.STREAMS, 3))
        assert not kernels.one_step_of_few(torch.empty(1, kernels.STREAMS + 1, 3))
        assert not kernels.one_step_of_few(torch.empty(2, 1, 3))
        assert not kernels.one_step_of_few(torch.empty(1, 1, 3, device="meta"))
        with torch.autocast("cpu", torch.bfloat16):
            assert not kernels.one_step_of_few(torch.empty(1, 1, 3))
    assert not kernels.one_step_of_few(torch.empty(1, 1, 3))


NOISES = {
    "dropout of each gate": {"input_dropout": 0.3, "recurrent_dropout": 0.4},
    "dropout of all gates": {"input_dropout": 0.3, "recurrent_dropout": 0.4, "per_gate": False},
    "input dropout of each gate": {"input_dropout": 0.3},
    "input dropout of all gates, fused": {"input_dropout": 0.3, "per_gate": False},
    "recurrent dropout": {"recurrent_dropout": 0.4},
    "zoneout": {"zoneout_h": 0.3, "zoneout_c": 0.6},
    "zoneout of cells, dropout": {"zoneout_c": 0.3, "input_dropout": 0.3, "recurrent_dropout": 0.2},
    "none, fused": {},
}


def drawn_noise(encoder: VariationalLSTMEncoder, x: Tensor, layers: int, seed: int) -> list[reference.LSTMNoise]:
    """What the encoder draws after this seed: of each layer the masks of x, those of h, and what is kept, if any."""
    config, size = encoder.config, encoder.output_size
    (steps, batch, below), training = x.shape, encoder.training
    torch.manual_seed(seed)

    def masks(rate: float, width: int) -> list[Tensor]:
        drawn = x.new_ones(4, batch, width)
        if rate and training:
            drawn[:] = dropout.dropout_mask((4 if config.per_gate else 1, batch, width), rate, x, None)
        return list(drawn)

    def kept(rate: float) -> list[Tensor]:
        if rate and training:
            return list(dropout.keep_mask((steps, batch, size), 1 - rate, x.device).to(x.dtype))
        return list(x.new_full((steps, batch, size), rate))

    noise = []
    for layer in range(layers):
        width = below if layer == 0 else size
        of_x, of_h = masks(config.input_dropout, width), masks(config.recurrent_dropout, size)
        noise.append(reference.LSTMNoise(of_x, of_h, kept(config.zoneout_h), kept(config.zoneout_c)))
    return noise


@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
@pytest.mark.parametrize("options", NOISES.values(), ids=NOISES)
@pytest.mark.parametrize(("steps", "batch", "layers"), [(1, 1, 1), (5, 2, 2)])
def test_variational_lstm(steps: int, batch: int, layers: int, options: dict[str, Any], training: bool) -> None:
    encoder = build(VariationalLSTMConfig(hidden_size=4, layers=layers, **options), 3).train(training)
    x = values(steps, batch, 3).requires_grad_()
    h, c = (values(layers, batch, 4, seed=seed).requires_grad_() for seed in (1, 2))
    leaves = [x, h, c, *[p for p in encoder.parameters() if p.requires_grad]]
    equations = [layer for lstm in encoder.layers for layer in layers_of(lstm)]

    torch.manual_seed(3)
    outputs, state = encoder(x, {"h": h, "c": c})
    actual = [outputs, state["h"], state["c"]]
    noise = drawn_noise(encoder, x.detach(), layers, seed=3)
    expected = list(reference.lstm(x, h, c, equations, noise))

    assert_twin(actual, expected, leaves)


def higher_order(encoder: HORNNEncoder) -> reference.HigherOrder:
    """The paper's matrices, lag 1 first."""
    blocks = [matrices.T.split(encoder.output_size) for matrices in encoder.recurrent.flip(0)]
    gate = encoder.gate.weight.split(encoder.output_size)[::-1] if encoder.pooling == "gated" else []
    return reference.HigherOrder(
        w_in=encoder.input.weight,
        b=encoder.input.bias,
        w=[block[0] for block in blocks],
        v=list(gate),
        u=[block[1] for block in blocks if len(block) == 2],
        w_0=encoder.feedback and encoder.feedback.weight,
    )


@pytest.mark.parametrize("newest_apart", [False, True])
@pytest.mark.parametrize("carried", ["fresh", "partial", "full"])
@pytest.mark.parametrize(
    ("pooling", "factor"), [("fofe", 0.6), ("fofe", 0.35), ("fofe", 1.0), ("gated", 0), ("max", 0)]
)
@pytest.mark.parametrize(
    ("steps", "batch", "order"), rest_slow([(6, 2, 3), (2, 3, 5), (1, 1, 1), (1, 3, 4), (4, 1, 2)], always=3)
)
def test_hornn(
    steps: int, batch: int, order: int, pooling: Any, factor: float, carried: str, newest_apart: bool
) -> None:
    options = {"forgetting_factor": factor} if pooling == "fofe" else {}
    config = HORNNConfig(hidden_size=SIZE, order=order, pooling=pooling, newest_apart=newest_apart, **options)
    encoder, held = build(config, 4), order + newest_apart
    x = values(steps, batch, 4, seed=7).requires_grad_()
    past = past_outputs(carried, held, batch, SIZE)
    leaves = [x, *encoder.parameters(), *[h for p in past for h in p]]
    zeros = torch.zeros(SIZE, dtype=torch.float64)

    outputs, state = encoder(x, {"h": slots(past, held, lambda h: h, zeros)})
    h, remembered = reference.hornn(x, past, pooling, factor, higher_order(encoder))

    actual, expected = [outputs, state["h"]], [h, slots(remembered, held, lambda h: h, zeros)]
    assert_twin(actual, expected, leaves)


def carried(encoder: Any, batch: int) -> Tensors:
    zeros = encoder.init_state(batch).items()
    return {name: values(*zero.shape, seed=n).requires_grad_() for n, (name, zero) in enumerate(zeros, 1)}


@pytest.mark.parametrize(("rounds", "rank"), [(1, None), (5, None), (4, 2)])
@pytest.mark.parametrize(("steps", "batch", "layers"), [(1, 1, 1), (5, 2, 2)])
def test_mogrifier_lstm(steps: int, batch: int, layers: int, rounds: int, rank: int | None) -> None:
    encoder = build(MogrifierLSTMConfig(hidden_size=4, layers=layers, rounds=rounds, rank=rank), 3)
    x, state = values(steps, batch, 3).requires_grad_(), carried(encoder, batch)
    equations = []
    for layer in encoder.layers:
        w_x, w_h = layer.lstm.weight.split([layer.lstm.in_features - 4, 4], 1)
        matrices = [gate[1].weight @ gate[0].weight if rank else gate.weight for gate in layer.rounds]
        equations.append(reference.MogrifierLayer(reference.LSTMLayer(w_x, w_h, layer.lstm.bias), matrices))
    outputs, after = encoder(x, state)
    expected, h, c = reference.mogrifier_lstm(x, state["h"], state["c"], equations)
    leaves = [x, *state.values(), *encoder.parameters()]
    assert_twin([outputs, after["h"], after["c"]], [expected, torch.stack(h), torch.stack(c)], leaves)


@pytest.mark.parametrize(("steps", "batch", "layers", "expansion", "size"), [(1, 1, 1, 1, 4), (7, 2, 2, 2, 3)])
def test_min_gru(steps: int, batch: int, layers: int, expansion: int, size: int) -> None:
    encoder = build(MinGRUConfig(hidden_size=4, layers=layers, expansion=expansion), size)
    x, state = values(steps, batch, size).requires_grad_(), carried(encoder, batch)
    h, ends = projected(encoder, x), []
    for p, layer, h0 in zip(branches(encoder), encoder.layers, state["h"], strict=True):
        (w_z, w_h), (b_z, b_h) = layer.zh_proj.weight.chunk(2), layer.zh_proj.bias.chunk(2)
        y, end = reference.min_gru(reference.normed(h, p.norm), h0, w_z, b_z, w_h, b_h, layer.o_proj.weight)
        h = reference.block(h, y, p)
        ends.append(end)
    expected = [reference.normed(h, encoder.norm.weight), torch.stack(ends)]
    outputs, after = encoder(x, state)
    assert_twin([outputs, after["h"]], expected, [x, *state.values(), *encoder.parameters()])


@pytest.mark.parametrize(("steps", "batch", "layers", "size"), [(1, 1, 1, 4), (5, 2, 2, 3)])
def test_lstm_blocks(steps: int, batch: int, layers: int, size: int) -> None:
    encoder = build(LSTMBlocksConfig(hidden_size=4, layers=layers), size)
    x, state = values(steps, batch, size).requires_grad_(), carried(encoder, batch)
    h, ends = projected(encoder, x), []
    for n, (p, layer) in enumerate(zip(branches(encoder), encoder.layers, strict=True)):
        read, of_layer = reference.normed(h, p.norm), (state["h"][n : n + 1], state["c"][n : n + 1])
        y, *end = reference.lstm(read, *of_layer, layers_of(layer.lstm))
        h = reference.block(h, y, p)
        ends.append(end)
    last_h, last_c = (torch.stack([part[0] for part in of]) for of in zip(*ends, strict=True))
    outputs, after = encoder(x, state)
    trained = [weight for weight in encoder.parameters() if weight.requires_grad]
    expected = [reference.normed(h, encoder.norm.weight), last_h, last_c]
    assert_twin([outputs, after["h"], after["c"]], expected, [x, *state.values(), *trained])


@pytest.mark.parametrize("steps", [1, 2, 3, 8, 13, 32])
def test_the_scan_sums_in_the_same_order_whatever_comes_after(steps: int) -> None:
    a, b, h = values(steps, 2, 3).sigmoid(), values(steps, 2, 3, seed=1), values(1, 2, 3, seed=2)
    whole = recurrence(a, b, h)
    assert all(bitwise(recurrence(a[:t], b[:t], h), whole[:t]) for t in range(1, steps + 1))


def heads(layer: GatedDelta) -> list[reference.DeltaHead]:
    count, keys, values_ = layer.shape
    rows = layer.in_proj.weight.split([count * keys, count * keys, *[count * values_] * 2, count, count])
    q, k, v, g = (part.view(count, -1, part.shape[1]) for part in rows[:4])
    convolutions = layer.conv.split([count * keys, count * keys, count * values_], 1)
    conv_q, conv_k, conv_v = (part.view(len(part), count, -1) for part in convolutions)
    w_o = layer.o_proj.weight.view(-1, count, values_)
    return [
        reference.DeltaHead(
            *(q[n], k[n], v[n], conv_q[:, n], conv_k[:, n], conv_v[:, n]),
            *(g[n], rows[4][n], rows[5][n], layer.A_log[n], layer.dt_bias[n], layer.norm.weight, w_o[:, n]),
        )
        for n in range(count)
    ]


def head_states(layer: GatedDelta, inputs: Tensor, memory: Tensor) -> list[list[reference.HeadState]]:
    """By head and stream, of the convolution's inputs (3, B, ·) and Sᵀ (B, heads, d_k, d_v)."""
    count, keys, values_ = layer.shape
    parts = inputs.split([count * keys, count * keys, count * values_], -1)
    q, k, v = (part.view(*part.shape[:2], count, -1) for part in parts)
    return [
        [reference.HeadState(*(list(x[:, b, n]) for x in (q, k, v)), memory[b, n].T) for b in range(len(memory))]
        for n in range(count)
    ]


@pytest.mark.parametrize("chunk", [2, 3, 64])
@pytest.mark.parametrize(("steps", "batch", "layers", "count", "size"), [(1, 1, 1, 1, 4), (7, 2, 2, 2, 3)])
def test_delta(
    steps: int, batch: int, layers: int, count: int, size: int, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delta, "CHUNK", chunk)
    encoder = build(DeltaConfig(hidden_size=4, layers=layers, heads=count, head_size=3), size)
    x, state = values(steps, batch, size).requires_grad_(), carried(encoder, batch)
    h, inputs, memories = projected(encoder, x), [], []
    layers_of_state = zip(branches(encoder), encoder.layers, state["inputs"].split(3), state["S"], strict=True)
    for p, layer, past, memory in layers_of_state:
        read, y, after_heads = reference.normed(h, p.norm), 0, []
        for head, start in zip(heads(layer), head_states(layer, past, memory), strict=True):
            part, end = reference.delta_head(read, start, head)
            y = y + part
            after_heads.append(end)
        h = reference.block(h, y, p)
        memories.append(torch.stack([torch.stack([end.s.T for end in of]) for of in after_heads], 1))
        names = [
            [torch.stack([torch.stack(getattr(end, name)) for end in of], 1) for of in after_heads] for name in "qkv"
        ]
        inputs.append(torch.cat([part for of in names for part in of], -1))
    expected = [reference.normed(h, encoder.norm.weight), torch.cat(inputs), torch.stack(memories)]
    outputs, after = encoder(x, state)
    assert_twin([outputs, after["inputs"], after["S"]], expected, [x, *state.values(), *encoder.parameters()])


@pytest.mark.slow  # it loads transformers
def test_the_delta_rule_is_the_one_of_hugging_face() -> None:
    qwen = pytest.importorskip("transformers.models.qwen3_next.modeling_qwen3_next")
    (q, k), v = (values(150, 2, 3, 8, seed=n).float() for n in range(2)), values(150, 2, 3, 5, seed=2).float()
    q, k = (x / x.norm(dim=-1, keepdim=True) for x in (q, k))
    log_alpha, beta = -values(150, 2, 3, seed=3).float().exp() / 9, values(150, 2, 3, seed=4).float().sigmoid()
    memory = values(2, 3, 8, 5, seed=5).float()
    theirs = (x.transpose(0, 1) for x in (q * 8**0.5, k, v, log_alpha, beta))  # it divides q by √d
    o, end = qwen.torch_recurrent_gated_delta_rule(*theirs, initial_state=memory, output_final_state=True)
    torch.testing.assert_close(delta_rule(q, k, v, log_alpha, beta, memory), (o.transpose(0, 1), end))


@pytest.mark.parametrize("steps", [20, 500])
def test_strong_and_weak_decay_side_by_side_lose_no_digits(steps: int) -> None:
    """As differences of cumulative sums would."""
    q, k, v = (values(steps, 1, 1, 4, seed=n) for n in range(3))
    q, k = (x / x.norm(dim=-1, keepdim=True) for x in (q, k))
    log_alpha = torch.where(torch.arange(steps).view(-1, 1, 1) % 10 == 4, -1e7, -0.01).double()
    beta, memory = values(steps, 1, 1, seed=3).sigmoid(), values(1, 1, 4, 4, seed=4)
    exact = delta_rule(q, k, v, log_alpha, beta, memory)
    rounded = delta_rule(*(x.float() for x in (q, k, v, log_alpha, beta, memory)))
    torch.testing.assert_close([x.double() for x in rounded], list(exact), rtol=1e-5, atol=1e-5)


@needs_bf16
@pytest.mark.parametrize(
    "config", [MogrifierLSTMConfig(hidden_size=8), MinGRUConfig(hidden_size=8), DeltaConfig(hidden_size=8)], ids=str
)
def test_state_and_outputs_of_reduced_precision_are_float32(config: Any) -> None:
    encoder, x = build(config, 5, init_range=0.3).float(), values(9, 2, 5).float()
    state = encoder.init_state(2)
    with torch.autocast("cpu", torch.bfloat16):
        h, after = encoder(x, state)
    h.sum().backward()
    assert {h.dtype, *(s.dtype for s in after.values())} == {torch.float32}
    assert all(p.grad.isfinite().all() for p in encoder.parameters())
    expected = encoder(x, state)[0]
    torch.testing.assert_close(h, expected, rtol=0, atol=0.1)
    assert not torch.equal(h, expected)


@pytest.fixture
def masks(monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    return recorded(monkeypatch)


@pytest.fixture(params=KERNELS)
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    choose(monkeypatch, request.param)


@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
@pytest.mark.parametrize("options", [NOISY, {"weight_drop": 0.4}, {"hidden_dropout": 0.3}, {}], ids=str)
@pytest.mark.parametrize(("steps", "batch", "layers"), [(1, 1, 1), (5, 2, 2), (4, 3, 3)])
def test_it_is_the_loop_with_the_same_masks(
    steps: int, batch: int, layers: int, options: dict[str, Any], training: bool, kernel: None, masks: list[Tensor]
) -> None:
    """Outputs, state, and all gradients, those of the raw weights and both biases included."""
    torch.manual_seed(1)
    encoder = stack(layers, **options).train(training)
    x, state = inputs(encoder, steps, batch)
    leaves = [x, *state.values(), *encoder.parameters()]
    outputs, after = encoder(x, state)
    actual = [outputs, *after.values()]

    of_weights = [m for m in masks if m.shape in {w.shape for w in matrices(encoder)}]
    of_units = [m for m in masks if m.shape == (batch, WIDE)]
    drops = {name: training and rate > 0 for name, rate in {**dict.fromkeys(NOISY, 0.0), **options}.items()}
    assert len(masks) == len(of_weights) + len(of_units)
    assert len(of_weights) == layers * drops["weight_drop"]
    assert len(of_units) == (layers - 1) * drops["hidden_dropout"]
    h, c = ([state[f"{name}_{n}"][0] for n in range(layers)] for name in "hc")
    plain = [(w_x, w_h, b_x + b_h) for w_x, w_h, b_x, b_h in (layer.parameters() for layer in encoder.layers)]
    equations = [reference.LSTMLayer(*weights) for weights in plain]
    of_weights = of_weights or [torch.ones_like(w) for w in matrices(encoder)]
    of_units = of_units or [torch.ones(batch, WIDE, dtype=x.dtype)] * (layers - 1)
    top, h, c = reference.awd_lstm(x, h, c, equations, of_weights, of_units)
    expected = [top, *[end.unsqueeze(0) for pair in zip(h, c, strict=True) for end in pair]]

    assert_twin(actual, expected, leaves)


@needs_bf16
def test_reduced_precision_trains(kernel: None) -> None:
    answers = []
    for reduced in (False, True):
        encoder = stack(**NOISY).float()
        x, state = values(8, BATCH, EMBEDDING).float(), encoder.init_state(BATCH)
        torch.manual_seed(3)
        pieces = []
        with torch.autocast("cpu", torch.bfloat16, enabled=reduced):
            for segment in x.split(2):
                h, state = encoder(segment, {name: s.detach() for name, s in state.items()})
                pieces.append(h.float())
        answers.append(torch.cat(pieces))
        answers[-1].sum().backward()
        assert all(p.grad.dtype == torch.float32 and p.grad.isfinite().all() for p in encoder.parameters())
    torch.testing.assert_close(answers[1], answers[0], rtol=0, atol=0.03)
    assert not torch.equal(*answers)


def test_training_calls_change_nothing_by_themselves(kernel: None) -> None:
    """Weights that were dropped in place would decay to zero."""
    encoder = stack(**NOISY)
    x, state = inputs(encoder)
    before, weights = encoder.eval()(x, state)[0], [p.detach().clone() for p in encoder.parameters()]
    for _ in range(20):
        encoder.train()(x, state)
    assert bitwise(list(encoder.parameters()), weights)
    assert bitwise(encoder.eval()(x, state)[0], before)
