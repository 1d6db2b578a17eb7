"""Nearest neighbours: mix a trained model, in evaluation, with the words that followed similar states in training.

Khandelwal, Levy, Jurafsky, Zettlemoyer & Lewis, "Generalization through Memorization: Nearest Neighbor Language Models"
(ICLR 2020), §2:

    p(w) = λ p_kNN(w) + (1 − λ) p_LM(w),    p_kNN(w) ∝ Σ_{(k_i, w_i) ∈ N} 1[w_i = w] exp(−d(k_i, h) / T)    (2, 3)

h is the head's input (`Readout.features`, before a projection of the head), N the K pairs with the smallest d(k, h) =
‖k − h‖², the earlier pair where two are as near. The paper has no temperature: T = 1.

The pairs, of every predicted word of the training part, lie in a datastore of the cache folder: the keys in float16,
the words, and a SHA-256. It is written once for some weights, text and way of reading, and read through a memory map.
All keys are searched, some at a time: ‖k‖² − 2 k·h + ‖h‖², in float32 and with k and h less the mean of some keys,
without which it would cancel, finds 2K candidates, and ‖k − h‖² of these the K nearest.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from spanlm.data.config import Split
from spanlm.data.corpora import Corpus
from spanlm.data.token_files import cached, caching, is_whole
from spanlm.errors import InputError, RunError, require
from spanlm.models.interfaces import NextWordModel
from spanlm.models.ops.precision import no_autocast, products
from spanlm.scoring.cache import GridTuning, mixed, tune_grid
from spanlm.scoring.options import NeighboursConfig, NeighboursGrid
from spanlm.scoring.perplexity import Evaluation, measure
from spanlm.scoring.protocol import STANDARD, Protocol
from spanlm.scoring.stream import Reading, Report, log_p, quiet, read
from spanlm.store.run_folder import model_digest

FORMAT, HEADER_BYTES = 1, 512
PART: Split = "train"

MOST_KEYS = 20_000_000

STREAMS = 32
"""Streams side by side when a training text is read; each starts in the middle with an empty state."""

LENGTH = 4096
"""Steps at a time in evaluation: all keys pass by once for each segment."""

QUERIES, KEYS = 256, 8192
"""Rows and columns of a block of distances (8 MB): what is done with it runs in the processor's cache."""

_PLACE = 2**32 - 1


@dataclass(frozen=True, eq=False)
class Datastore:
    """N pairs of a state and the word that followed it.

    Attributes:
        path: the file.
        owner: the network that has these states, see `owner_of`.
        text: the training text.
        keys: float16 (N, D), memory-mapped.
        words: int32 (N,), memory-mapped.
    """

    path: Path
    owner: str
    text: str
    keys: NDArray[np.float16]
    words: NDArray[np.int32]

    def to_json(self) -> dict[str, Any]:
        count, size = self.keys.shape
        megabytes = round(self.path.stat().st_size / 1e6, 1)
        return {"text": self.text, "keys": count, "size": size, "megabytes": megabytes, "file": str(self.path)}

    def nearest(self, query: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """Return d of the nearest keys of each query (Q, D), nearest first, and their words: both (Q, K)."""
        device, size = query.device, min(2 * count, len(self.keys))
        origin = torch.from_numpy(self.keys[:KEYS]).to(device).float().mean(0)
        blocks = torch.split(query.float() - origin, QUERIES)
        best = [torch.empty(len(block), 0, dtype=torch.long, device=device) for block in blocks]
        with no_autocast(device), products(device, "fp32"):
            for start in range(0, len(self.keys), KEYS):
                keys = torch.from_numpy(self.keys[start : start + KEYS]).to(device).float() - origin
                places = torch.arange(start, start + len(keys), device=device)
                squares = keys.square().sum(1)
                for number, h in enumerate(blocks):
                    d = torch.addmm(squares, h, keys.T, alpha=-2).add_(h.square().sum(1, keepdim=True)).clamp_(min=0)
                    codes = torch.cat([best[number], _codes(d, places)], 1)
                    best[number] = codes.topk(min(size, codes.shape[1]), largest=False, sorted=False).values
        nearest = []
        for h, codes in zip(torch.split(query.float(), QUERIES), best, strict=True):
            places = codes & _PLACE
            keys = torch.from_numpy(self.keys)[places.cpu()].to(device).float()
            d = (keys - h.unsqueeze(1)).square().sum(2)
            nearest.append(_codes(d, places).topk(min(count, size), largest=False, sorted=True).values)
        codes = torch.cat(nearest)
        words = torch.from_numpy(self.words)[(codes & _PLACE).cpu()]
        return (codes >> 32).int().view(torch.float32), words.to(device)


def _codes(d: Tensor, places: Tensor) -> Tensor:
    """Join d and places in numbers of the order of d and, for equal d, of the places."""
    # positive floats are ordered as their bits
    return (d.view(torch.int32).long() << 32) | places


class Neighbours:
    """Question for log p_kNN at several T, (N, T) float64, and log p with the first mixed in: `other`, `mixed`."""

    def __init__(self, store: Datastore, k: int, temperatures: Sequence[float], share: float = 0.0) -> None:
        require(k <= len(store.keys), "neighbours.k", k, f"at most {len(store.keys):,}, the words of {store.text}")
        self._store, self._k, self._temperatures, self._share = store, k, temperatures, share

    def __call__(self, reading: Reading) -> Mapping[str, Tensor]:
        distances, words = self._store.nearest(reading.flat(reading.readout.features), self._k)
        above = (distances - distances[:, :1]).double()
        hit = words == reading.flat(reading.segment.targets).unsqueeze(1)
        columns = []
        for temperature in self._temperatures:
            weights = (above / -temperature).exp_()
            columns.append((weights.where(hit, 0).sum(1) / weights.sum(1)).log())
        other = torch.stack(columns, 1)
        return {"other": other, "mixed": mixed(log_p(reading)["log_p"], other[:, 0], self._share)}


def _states(reading: Reading) -> Mapping[str, Tensor]:
    return {"state": reading.flat(reading.readout.features).half()}


def owner_of(model: NextWordModel, lesion: str | None = None) -> str:
    """Identify the network that has a state: SHA-256 of its weights, and the lesion of its memory, if any."""
    return f"{model_digest(model)} {lesion or 'intact'}"


def find_datastore(
    model: NextWordModel,
    corpus: Corpus,
    protocol: Protocol = STANDARD,
    *,
    lesion: str | None = None,
    report: Report = quiet,
) -> Datastore:
    """Read the datastore of a model and its training corpus from the cache folder; if missing or damaged, write it.

    `report` is called with the progress of writing.

    Raises:
        InputError: the corpus has no training part, or more than `MOST_KEYS` words.
        RunError: a state is not finite in float16, or the cache folder cannot be written.
    """
    streams = None if protocol.context == "line" else STREAMS
    batcher = replace(protocol, batch_size=streams).batcher(corpus, PART, in_order=True)
    limit = f"is for training texts of at most {MOST_KEYS:,} words; {corpus.name} has {batcher.targets:,}"
    if batcher.targets > MOST_KEYS:
        raise InputError("neighbours", limit=limit)
    owner, way = owner_of(model, lesion), (protocol.context, protocol.predict_first, protocol.precision)
    path = cached("states", FORMAT, owner, corpus.digest(PART), *way)
    header = _header(path) if is_whole(path) else {}
    if header.get("name") != path.name:
        with caching(path) as file:
            file.write(b" " * HEADER_BYTES)
            words, size = [], 0
            for block in read(model, batcher.segments(), protocol, _states):
                state = block.answers["state"]
                if not bool(state.isfinite().all()):
                    raise RunError(f"neighbours: a state of {corpus.name} {PART} is not finite in float16")
                file.write(block.numpy("state").tobytes())
                words.append(block.ids.numpy().astype("<i4"))
                size = state.shape[1]
                report("states of the training text", sum(map(len, words)), batcher.targets)
            file.write(np.concatenate(words).tobytes())
            file.seek(0)
            file.write(json.dumps({"name": path.name, "keys": batcher.targets, "size": size}).encode())
        header = _header(path)
    count, size = header["keys"], header["size"]
    # mode c: torch warns about arrays that cannot be written to
    keys = np.memmap(path, "<f2", "c", HEADER_BYTES, (count, size))
    followed = np.memmap(path, "<i4", "c", HEADER_BYTES + keys.nbytes, (count,))
    return Datastore(path, owner, f"{corpus.name} {PART}", keys, followed)


def _header(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        header: dict[str, Any] = json.loads(file.read(HEADER_BYTES))
    return header


def evaluate_neighbours(
    model: NextWordModel, corpus: Corpus, split: str, protocol: Protocol, store: Datastore, config: NeighboursConfig
) -> Evaluation:
    """Measure perplexity with neighbours; the result has the numbers without them, from the same pass.

    Raises:
        InputError: K is larger than the datastore.
    """
    question = Neighbours(store, config.k, (config.temperature,), config.lambda_)
    columns = {"log_p": "", "mixed": f"{config.description} in {store.text}"}
    plain, result = measure(
        lambda segments: read(model, segments, protocol, log_p, question),
        corpus,
        split,
        protocol,
        columns,
        length=LENGTH,
    )
    return replace(result, without_neighbours=plain)


@dataclass(frozen=True)
class TriedNeighbours:
    """A grid point: K, T, λ and the perplexity with these neighbours."""

    k: int
    temperature: float
    lambda_: float
    perplexity: float


NeighboursTuning = GridTuning[NeighboursConfig, TriedNeighbours]


def tune_neighbours(
    model: NextWordModel, corpus: Corpus, split: str, protocol: Protocol, store: Datastore, grid: NeighboursGrid
) -> NeighboursTuning:
    """Try every T with every λ, in one pass; the text is not to be the one to report."""
    batcher = protocol.batcher(corpus, split, length=LENGTH)
    question = Neighbours(store, grid.k, grid.temperatures)
    axes = {"k": (grid.k,), "temperature": grid.temperatures, "lambda_": grid.lambdas}
    return tune_grid(model, corpus, split, batcher, protocol, question, axes, NeighboursConfig, TriedNeighbours)
