"""The optimisers are torch's own, bit for bit, without its compiler."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from spanlm.training.optimizers import SGD, Adagrad, Adam, Optimizer

KINDS: dict[str, tuple[type[Optimizer], type[torch.optim.Optimizer]]] = {
    "adam": (Adam, torch.optim.Adam),
    "adagrad": (Adagrad, torch.optim.Adagrad),
    "sgd": (SGD, torch.optim.SGD),
}


def weights() -> list[nn.Parameter]:
    draw = torch.Generator().manual_seed(0)
    return [nn.Parameter(torch.randn(shape, generator=draw)) for shape in ((7, 5), (3,), (4,))]


@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize("kind", KINDS)
def test_steps_are_torch_s_bit_for_bit(kind: str, decay: float) -> None:
    ours, theirs = weights(), weights()
    mine: Any = KINDS[kind][0](ours, lr=0.1, weight_decay=decay)
    other: Any = KINDS[kind][1](theirs, lr=0.1, weight_decay=decay, fused=True)
    for step in range(5):
        mine.lr = other.param_groups[0]["lr"] = 0.1 / (step + 1)
        for one in (*ours[:2], *theirs[:2]):  # the last never has a gradient
            one.grad = torch.sin(one.detach() * (step + 1))
        mine.step()
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
