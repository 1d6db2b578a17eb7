"""Taking turns: every contender's step is timed in every round, so that the machine's moods hit all alike."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import torch

from spanlm.benchmark.contenders import (
    KVP_834,
    LSTM_650,
    SENTENCES_650,
    Size,
    evaluation_step,
    project_trainer,
    sentence_step,
    synthetic_corpus,
    textbook_step,
    training_flops,
    with_memory,
    without_memory,
)
from spanlm.data.batching import Segment, make_batcher
from spanlm.device import pick_device
from spanlm.evaluation.scoring import Precision
from spanlm.models.memories import AnyMemoryConfig, AttentiveConfig, NoMemoryConfig
from spanlm.training.provenance import machine

SEGMENTS = 4
MATRIX = 2048
PRECISIONS: tuple[Precision, ...] = ("fp32", "bf16")


@dataclass(frozen=True)
class Measured:
    """One contender.

    Attributes:
        name: what was timed.
        precision: of its products.
        milliseconds: median of one step.
        tokens_per_second: at that median.
        ratio: tokens_per_second over the reference's.
        reference: of which contender.
        target: what the ratio should reach, if there is a target.
        of_ceiling: floating-point operations a second over those of the matrix product in the same precision.
        peak_megabytes: most memory that the process (or the GPU) held during its steps; None if unknown.
    """

    name: str
    precision: str
    milliseconds: float
    tokens_per_second: float
    ratio: float
    reference: str
    target: float | None
    of_ceiling: float
    peak_megabytes: float | None


@dataclass(frozen=True)
class Report:
    """A whole benchmark.

    Attributes:
        machine: processor, threads, versions.
        ceiling: GFLOP/s of a matrix product, by precision.
        groups: contenders by size.
    """

    machine: dict[str, Any]
    ceiling: dict[str, float]
    groups: dict[str, list[Measured]]

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)


@dataclass
class Contender:
    """A step to time, and what it is compared with."""

    name: str
    precision: Precision
    step: Callable[[Segment], None]
    reference: str
    flops: float
    target: float | None = None


def benchmark(device_name: str = "auto", rounds: int = 15, note: Callable[[str], None] = lambda text: None) -> Report:
    """Measure everything.

    Args:
        device_name: auto, cpu, cuda.
        rounds: steps of each contender; the median is reported.
        note: told what is being measured.
    """
    device = pick_device(device_name, "--device")
    note("matrix product")
    ceiling: dict[str, float] = {precision: matrix_gflops(device, precision) for precision in PRECISIONS}
    groups = {}
    for size, make in ((LSTM_650, _textbook_group), (KVP_834, _memory_group), (SENTENCES_650, _attentive_group)):
        note(size.name)
        groups[f"{size.name}, V {size.vocabulary_size:,}, batch {size.batch_size} × {size.length}"] = _race(
            size, make(size, device), device, rounds, ceiling
        )
    return Report(machine(device), ceiling, groups)


def _textbook_group(size: Size, device: torch.device) -> list[Contender]:
    """The textbook's training step against the project's, then the project's evaluation."""
    corpus, flops = synthetic_corpus(size, SEGMENTS), training_flops(size)
    targets = {"fp32": 1.0, "bf16": 1.8}
    reference = "textbook, training fp32"
    found = []
    for precision in PRECISIONS:
        step = textbook_step(size, precision, device)
        found.append(Contender(f"textbook, training {precision}", precision, step, reference, flops))
    for precision in PRECISIONS:
        trainer = project_trainer(size, precision, str(device), corpus)
        name = f"spanlm, training {precision}"
        found.append(Contender(name, precision, trainer.step, reference, flops, targets[precision]))
        evaluation = evaluation_step(trainer.model, precision)
        found.append(Contender(f"spanlm, evaluation {precision}", precision, evaluation, name, flops / 3, 2.5))
    return found


def _memory_group(size: Size, device: torch.device) -> list[Contender]:
    """The model with its memory against the same encoder and softmax without."""
    corpus, flops = synthetic_corpus(size, SEGMENTS), training_flops(size)
    found = []
    for precision in PRECISIONS:
        plain = without_memory(project_trainer(size, precision, str(device), corpus))
        reference = f"same encoder and softmax, no memory, training {precision}"
        bare = training_flops(size, memory=False)
        found.append(Contender(reference, precision, plain.step, reference, bare))
        trainer = project_trainer(size, precision, str(device), corpus)
        name = f"spanlm, training {precision}"
        found.append(Contender(name, precision, trainer.step, reference, flops, 0.85))
        evaluation = evaluation_step(trainer.model, precision)
        found.append(Contender(f"spanlm, evaluation {precision}", precision, evaluation, name, flops / 3, 2.5))
    return found


def _attentive_group(size: Size, device: torch.device) -> list[Contender]:
    """The attentive memory, single and combined, against the same model without it."""
    corpus = synthetic_corpus(size, SEGMENTS)
    memories: list[tuple[str, AnyMemoryConfig, float | None]] = [
        ("no memory", NoMemoryConfig(), None),
        ("attentive, single", AttentiveConfig(score="single"), 0.91),
        ("attentive, combined", AttentiveConfig(score="combined"), 0.80),
    ]
    found = []
    for precision in PRECISIONS:
        for name, memory, target in memories:
            chosen = with_memory(size, memory)
            step = sentence_step(project_trainer(chosen, precision, str(device), corpus, "sentences"))
            reference = f"no memory, training {precision}"
            full = f"{name}, training {precision}"
            found.append(Contender(full, precision, step, reference, training_flops(chosen), target))
    return found


def _race(
    size: Size, contenders: list[Contender], device: torch.device, rounds: int, ceiling: dict[str, float]
) -> list[Measured]:
    corpus = synthetic_corpus(size, SEGMENTS)
    batcher = make_batcher(
        "streams",
        corpus.splits["train"],
        corpus.vocabulary.eos_id,
        batch_size=size.batch_size,
        length=size.length,
    )
    segments = list(islice(cycle(batcher.segments()), rounds))
    times: dict[str, list[float]] = {contender.name: [] for contender in contenders}
    peaks: dict[str, float | None] = {}
    for contender in contenders:  # warm up: caches, buffers, kernels; and the memory, one by one
        with _Peak(device) as peak:
            contender.step(segments[0])
            contender.step(segments[0])
        peaks[contender.name] = peak.megabytes
    for segment in segments:
        for contender in contenders:
            times[contender.name].append(_timed(contender.step, segment, device))
    median = {name: statistics.median(values) for name, values in times.items()}
    return [_measured(size, contender, median, ceiling, peaks[contender.name]) for contender in contenders]


def _measured(
    size: Size, contender: Contender, median: dict[str, float], ceiling: dict[str, float], peak: float | None
) -> Measured:
    seconds = median[contender.name]
    gflops = contender.flops * size.tokens / seconds / 1e9
    return Measured(
        name=contender.name,
        precision=contender.precision,
        milliseconds=seconds * 1e3,
        tokens_per_second=size.tokens / seconds,
        ratio=median[contender.reference] / seconds,
        reference=contender.reference,
        target=contender.target,
        of_ceiling=gflops / ceiling[contender.precision],
        peak_megabytes=peak,
    )


def _timed(step: Callable[[Segment], None], segment: Segment, device: torch.device) -> float:
    _synchronise(device)
    began = time.perf_counter()
    step(segment)
    _synchronise(device)
    return time.perf_counter() - began


def _synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def matrix_gflops(device: torch.device, precision: Precision, rounds: int = 25) -> float:
    """Return GFLOP/s of the fastest of some square matrix products: about what this machine can do at best."""
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[precision]
    a = torch.randn(MATRIX, MATRIX, device=device, dtype=dtype)
    b = torch.randn(MATRIX, MATRIX, device=device, dtype=dtype)

    def once() -> float:
        _synchronise(device)
        began = time.perf_counter()
        torch.mm(a, b)
        _synchronise(device)
        return time.perf_counter() - began

    once()
    return 2 * MATRIX**3 / min(once() for _ in range(rounds)) / 1e9


class _Peak:
    """Most memory held inside the block: of the GPU, or of the process where Linux lets its mark be reset."""

    megabytes: float | None = None

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def __enter__(self) -> _Peak:
        if self._device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self._device)
        else:
            self._resettable = _reset_peak_of_process()
        return self

    def __exit__(self, *error: object) -> None:
        if self._device.type == "cuda":
            self.megabytes = torch.cuda.max_memory_allocated(self._device) / 2**20
        elif self._resettable:
            self.megabytes = _peak_of_process()


def _reset_peak_of_process() -> bool:
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def _peak_of_process() -> float | None:
    for line in _lines(Path("/proc/self/status")):
        if line.startswith("VmHWM:"):
            return float(line.split()[1]) / 2**10
    return None


def _lines(path: Path) -> Iterator[str]:
    yield from path.read_text().splitlines() if path.exists() else ()
