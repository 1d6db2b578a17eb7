"""What a training step asks of a GPU, counted without one; what memory it takes."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from spanlm.data.corpora import load_corpus
from spanlm.papers.registry import find_preset
from spanlm.training.bench import idle_trainer, spread
from spanlm.training.dispatch import DispatchedStep, counted, dispatched

META = torch.device("meta")


def test_operations_are_counted_and_views_are_not() -> None:
    x = torch.ones(3, 4, device=META, requires_grad=True)
    with counted() as step:
        y = (x.T @ x).view(-1)[1:].tanh()
        y.backward(torch.ones_like(y))
        assert bool((torch.ones(3) + 1).all()), "what the processor computes is not counted"
    once = ("mm.default", "tanh.default", "tanh_backward.default", "ones_like.default", "slice_backward.default")
    assert {name: step.operations[name] for name in once} == dict.fromkeys(once, 1) | {"mm.default": 3}
    assert not any("view" in name or name.startswith("t.") for name in step.operations)
    assert step.waits == 0


def test_torch_kernels_are_one_operation_each_way() -> None:
    layer, x = nn.LSTM(4, 5, 2, device=META), torch.ones(7, 3, 4, device=META)
    state = torch.zeros(2, 3, 5, device=META)
    with counted() as step:
        output, ends, _ = torch.lstm(x, (state, state), list(layer.parameters()), True, 2, 0.0, True, False, False)
        output.backward(output.detach())
    assert output.shape == (7, 3, 5) and ends.shape == state.shape
    assert [p.grad.shape for p in layer.parameters() if p.grad is not None] == [p.shape for p in layer.parameters()]
    assert dict(step.operations) == {"cudnn_rnn": 1, "cudnn_rnn_backward": 1}


def test_every_read_of_a_value_is_a_wait() -> None:
    x = torch.ones(3, 4, device=META)
    with counted() as step:
        assert float(x.sum()) == 1.0 and bool((x > 0).all()) and x.tolist() == [[1.0] * 4] * 3
        assert (x > 0).nonzero().shape == (12, 2)
        assert x.cpu().device.type == "cpu" and x.to("cpu", torch.float64).dtype == torch.float64
    assert step.waits == 6


# at published sizes, with 10,000 words in lines of 25: operations and waits of a step
LIMITS = {
    "zaremba2014/medium": (75, 1),
    "daniluk2017/lstm": (54, 1),
    "daniluk2017/4-gram": (73, 1),
    "daniluk2017/kvp-w5": (116, 1),
    "daniluk2017/attention-w10": (118, 1),
    "daniluk2017/rm-w15": (147, 1),
    "salton2017/lstm-ptb": (76, 1),
    "salton2017/single-ptb": (117, 1),
    "salton2017/combined-ptb": (135, 1),
    "merity2018/awd-ptb": (142, 1),
    "yang2018/mos-ptb": (166, 1),
    "wang2019/mos-ps-at-ptb": (193, 1),
    "li2020/awd-snb-ptb": (310, 1),
}


def step_of(preset: str, corpus: Path) -> DispatchedStep:
    config = find_preset(preset).config
    data = replace(config.data, corpus=str(corpus), documents="none")
    trainer = idle_trainer(replace(config, data=data), load_corpus(data))
    return dispatched(trainer, *spread(trainer.batcher, 1))


@pytest.mark.slow
@pytest.mark.parametrize("preset", LIMITS)
def test_a_step_starts_no_more_operations_than_before(preset: str, corpus: Path) -> None:
    step, (operations, waits) = step_of(preset, corpus), LIMITS[preset]
    assert step.operations.total() <= operations, step.operations
    assert step.waits <= waits


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """10,000 words, enough for a segment of the presets' batches."""
    folder = tmp_path_factory.mktemp("words")
    words = [f"w{number}" for number in range(9_998)]
    lines = [" ".join(words[first : first + 25]) for first in range(0, len(words), 25)]
    for split in ("train", "valid", "test"):
        (folder / f"{split}.txt").write_text("\n".join(["<unk>", *lines]) + "\n", encoding="utf-8")
    return folder


MEMORY = """
import torch
from spanlm.training.bench import step_megabytes
CPU = torch.device("cpu")
held = torch.ones(2**23)
print(*(step_megabytes(lambda: torch.ones(n) + 1, CPU) for n in (2**10, 2**23)))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_memory_of_a_step_is_what_it_takes_beside_what_is_there() -> None:
    """In a process of its own: in this one memory that others have freed may serve the step."""
    said = subprocess.run([sys.executable, "-c", MEMORY], capture_output=True, text=True, check=True).stdout
    small, large = map(float, said.split())
    assert small < 8 and 60 < large < 80
