"""The optimisers are torch's own, bit for bit, without its compiler; and the one that begins to average."""

import contextlib
import os
import random
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from spanlm.training.config import OptimizerConfig
from spanlm.training.optimizers import NTASGD, SGD, Adagrad, Adam, AdamW, Optimizer, averaged
from spanlm.training.position import stagnated


def of_torch_adamw(weights: list[nn.Parameter], lr: float, weight_decay: float, fused: bool) -> torch.optim.Optimizer:
    """Two groups, as recipes have them: vectors do not decay."""
    groups = [{"params": [w for w in weights if (w.dim() > 1) == decays]} for decays in (True, False)]
    groups[1] |= {"weight_decay": 0.0}  # type: ignore[dict-item]
    return torch.optim.AdamW(groups, lr=lr, weight_decay=weight_decay, fused=fused)


KINDS: dict[str, tuple[type[Optimizer], Any]] = {
    "adam": (Adam, torch.optim.Adam),
    "adamw": (AdamW, of_torch_adamw),
    "adagrad": (Adagrad, torch.optim.Adagrad),
    "sgd": (SGD, torch.optim.SGD),
}


def step(optimizer: Optimizer | torch.optim.Optimizer) -> None:
    """A whole step, as the trainer does it."""
    if isinstance(optimizer, torch.optim.Optimizer):
        optimizer.step()
        return
    optimizer.begin()
    optimizer.update(optimizer.lr)
    optimizer.finish()


def weights() -> list[nn.Parameter]:
    draw = torch.Generator().manual_seed(0)
    return [nn.Parameter(torch.randn(shape, generator=draw)) for shape in ((7, 5), (3,), (4,))]


@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize("kind", KINDS)
def test_steps_are_torch_s_bit_for_bit(kind: str, decay: float) -> None:
    ours, theirs = weights(), weights()
    mine: Any = KINDS[kind][0](ours, OptimizerConfig(kind=kind, lr=0.1, weight_decay=decay))
    other: Any = KINDS[kind][1](theirs, lr=0.1, weight_decay=decay, fused=True)
    for number in range(1, 6):
        mine.lr = 0.1 / number
        for group in other.param_groups:
            group["lr"] = mine.lr
        for one in (*ours[:2], *theirs[:2]):  # the last never has a gradient
            one.grad = torch.sin(one.detach() * number)
        step(mine)
        other.step()
        mine.zero_grad()
        assert all(one.grad is None for one in ours)
        assert all(map(torch.equal, ours, theirs))
        for one, same in zip(ours, theirs, strict=True):
            kept, expected = mine.state.get(one, {}), other.state[same]
            assert list(kept) == [name for name in expected if expected[name] is not None]
            assert all(torch.equal(kept[name], expected[name]) for name in kept)


@pytest.mark.slow
def test_training_and_scoring_load_no_compiler(tmp_path: Path) -> None:
    """It takes longer to load than all else before the first step; nothing is compiled."""
    code = (
        "import sys\nfrom spanlm.cli.main import main\n"
        "train = 'train --corpus synthetic:copy,tokens=2000 --epochs 1 --out run'.split()\n"
        "score = 'score run text.txt --out scores.tsv'.split()\n"
        "assert main(train) == main(score) == 0\n"
        "loaded = {name for name in ('torch._dynamo', 'sympy', 'matplotlib') if name in sys.modules}\n"
        "assert not loaded, loaded\n"
    )
    (tmp_path / "text.txt").write_text("a b c\n")
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=dict(os.environ), check=True)


RATES = [30.0, 28.2, 15.0, 33.4, 30.0, 13.3, 29.1, 30.4]
"""Of one step after the other, as drawn segment lengths give."""


def triggers(losses: Sequence[float], n: int) -> int | None:
    """The epoch, counted from 1, after which the code of AWD-LSTM switches: its loop, line for line."""
    log: list[float] = []
    for epoch, loss in enumerate(losses, start=1):
        if len(log) > n and loss > min(log[:-n]):
            return epoch
        log.append(loss)
    return None


def first(losses: Sequence[float], n: int) -> int | None:
    return next((count for count in range(1, len(losses) + 1) if stagnated(losses[:count], n)), None)


@pytest.mark.parametrize("n", [1, 2, 3, 5, 9])
def test_the_test_is_that_of_the_code(n: int) -> None:
    draw = random.Random(n)
    found = set()
    for _ in range(300):
        losses = [round(5 - 0.1 * epoch + draw.gauss(0, 0.4), 1) for epoch in range(16)]
        assert first(losses, n) == triggers(losses, n)
        found.add(first(losses, n))
    assert len(found) > 4


class Walk:
    """Two weights that an optimiser moves by gradients of their own."""

    def __init__(self, dtype: torch.dtype = torch.float64) -> None:
        draw = torch.Generator().manual_seed(0)
        self._drawn = 0
        self.weights = [nn.Parameter(torch.randn(shape, generator=draw, dtype=dtype)) for shape in ((3, 2), (4,))]

    def steps(self, optimizer: Optimizer | torch.optim.Optimizer, rates: Sequence[float]) -> Iterator[list[Tensor]]:
        for rate in rates:
            self._drawn += 1
            set_rate(optimizer, rate)
            for weight in self.weights:
                # depends on the weight, so that one wrong step makes all that follow wrong
                weight.grad = torch.sin(weight.detach() * self._drawn) * 0.01
            step(optimizer)
            yield [weight.detach().clone() for weight in self.weights]


def set_rate(optimizer: Optimizer | torch.optim.Optimizer, rate: float) -> None:
    if isinstance(optimizer, Optimizer):
        optimizer.lr = rate
        return
    for group in optimizer.param_groups:
        group["lr"] = rate


def averages(optimizer: NTASGD, walk: Walk) -> list[Tensor]:
    with averaged(optimizer):
        return [weight.detach().clone() for weight in walk.weights]


@pytest.fixture
def double() -> Iterator[None]:
    """ASGD keeps its rate and the weight of its average in the default precision."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("decay", [0.0, 1.2e-2])
def test_lagged_rates_are_torch_s_asgd(decay: float) -> None:
    """As in the code of AWD-LSTM: SGD, then a new ASGD(lr, t0=0, lambd=0) over the weights as they are."""
    ours, theirs = Walk(), Walk()
    optimizer = NTASGD(ours.weights, OptimizerConfig(kind="nt_asgd", lr=30.0, weight_decay=decay, lagged_rates=True))
    sgd = torch.optim.SGD(theirs.weights, lr=30.0, weight_decay=decay)
    for mine, other in zip(ours.steps(optimizer, RATES[:3]), theirs.steps(sgd, RATES[:3]), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-12, atol=1e-12)
    optimizer.averaged_steps = 0
    asgd = torch.optim.ASGD(theirs.weights, lr=30.0, t0=0, lambd=0.0, weight_decay=decay)
    again = RATES[::-1]  # whose first is not the rate that either was made with
    for mine, other in zip(ours.steps(optimizer, again), theirs.steps(asgd, again), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-12, atol=1e-12)
        ax = [asgd.state[weight]["ax"] for weight in theirs.weights]
        torch.testing.assert_close(averages(optimizer, ours), ax, rtol=1e-12, atol=1e-12)


def walk_of(walk: Walk) -> Tensor:
    return torch.cat([weight.detach().flatten() for weight in walk.weights])


@pytest.mark.parametrize("error", [None, ValueError(), KeyboardInterrupt()], ids=repr)
def test_weights_come_back_whatever_happens(error: BaseException | None) -> None:
    walk = Walk(torch.float32)
    optimizer = NTASGD(walk.weights, OptimizerConfig(kind="nt_asgd", lr=1.0))
    optimizer.averaged_steps = 0
    list(walk.steps(optimizer, RATES))
    weights, places = walk_of(walk), [weight.data_ptr() for weight in walk.weights]
    with contextlib.suppress(ValueError, KeyboardInterrupt), averaged(optimizer) as there:
        assert there and not torch.equal(walk_of(walk), weights)
        if error is not None:
            raise error
    assert torch.equal(walk_of(walk), weights)
    assert [weight.data_ptr() for weight in walk.weights] == places


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_kernel_still_finds_the_weights_in_one_piece() -> None:
    """Warnings are errors: one would say that the LSTM's weights are copied at every call."""
    lstm = nn.LSTM(4, 6).cuda()
    optimizer = NTASGD(lstm.parameters(), OptimizerConfig(kind="nt_asgd", lr=0.1))
    optimizer.averaged_steps = 0
    x = torch.randn(5, 3, 4, device="cuda")
    for _ in range(3):
        lstm(x)[0].square().sum().backward()
        step(optimizer)
        optimizer.zero_grad()
        raw = lstm(x)[0].detach()
        with averaged(optimizer):
            assert not torch.equal(lstm(x)[0], raw) or optimizer.averaged_steps == 1
        assert torch.equal(lstm(x)[0], raw)
