"""A run as a page that reads what is typed: one HTML file with the weights inside, which needs no server or network.

The weights are float16, little-endian, in base64, under their names of the run. The script `pages/network.js` computes
with them what `spanlm.models` does. To it the attentive memory is a key-value memory of one part, whose W^x and W^r are
the halves of W_c: W_c [h; c] = W^x h + W^r c.
"""

from __future__ import annotations

import base64
import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from spanlm.analysis.pages import EXAMPLES, escaped, filled_page, page_data
from spanlm.data.vocabulary import EOS
from spanlm.errors import InputError
from spanlm.models.encoders import LSTMConfig
from spanlm.models.heads import SoftmaxConfig
from spanlm.models.language_model import LanguageModel
from spanlm.models.memories import AttentiveConfig, KeyValueConfig, NoMemoryConfig
from spanlm.runs.model import TrainedModel
from spanlm.scoring.options import EXPECTED
from spanlm.store.files import run_name

MOST_MEGABYTES = 16
"""Of the weights in a page, which a browser then opens in about a second."""

_SCRIPTS = ("reader.js", "help.js", "words_view.js", "writing.js", "network.js", "live.js")
_LOOKS = " Words turn blue where the model looked while it was guessing this one."
_WEIGHTS = ". The weights of the run, rounded to 16 bits, are in this file; what you write does not leave it."


def render_live(model: TrainedModel) -> str:
    """Return the page of a run.

    Raises:
        InputError: the script does not compute a part of the model or cut texts as the run does, or the page would be
            too large.
    """
    _refuse_others(model)
    texts, config = model.texts, model.config
    weights = _weights(model.model)
    numbers = sum(weight.numel() for weight in weights.values())
    if (megabytes := numbers * 2 * 4 / 3 / 1e6) > MOST_MEGABYTES:  # base64 has 4 letters for 3 bytes
        why = f"its weights would take {megabytes:,.1f} MB of a page; must be at most {MOST_MEGABYTES}"
        way_out = f"Train with a smaller vocabulary (data.max_size), or take `spanlm serve {model.folder}`"
        raise InputError(model.folder, limit=why, way_out=way_out)
    halves = torch.cat([weight.detach().flatten() for weight in weights.values()]).half().cpu()
    if not halves.isfinite().all():
        raise InputError(model.folder, limit="has a weight beyond 65,504, the largest number of 16 bits")
    memory = _memory(model.model)
    content = {
        "words": texts.vocabulary.words,
        "eos": EOS,
        "rule": config.data.effective_tokenizer,
        "opens": texts.predict_first,
        "alone": texts.line_by_line or config.model.memory.slots is None,
        "examples": EXAMPLES.get(Path(config.data.corpus).name, EXAMPLES[""]),
        "expected": EXPECTED,
        "layers": sum(".weight_hh" in name for name in weights),
        "memory": memory,
        "sizes": {name: weight.numel() for name, weight in weights.items()},
        "weights": base64.b64encode(halves.numpy().astype("<f2").tobytes()).decode(),
    }
    as_written = f" Words are read as you write them: write as {texts.convention} does." if texts.convention else ""
    parts = {
        "about": escaped(model.headings()["about"] + _WEIGHTS + as_written),
        "looks": "" if memory is None else _LOOKS,
        "record": page_data(content),
    }
    styles = ("reader.css", "writing.css")
    return filled_page("live.html", parts, styles, _SCRIPTS, f"{run_name(model.folder)} reads as you write")


def _refuse_others(model: TrainedModel) -> None:
    room, data = model.config.model, model.config.data
    memories = NoMemoryConfig | KeyValueConfig | AttentiveConfig
    rules = (
        ("model.encoder.kind", room.encoder.kind, isinstance(room.encoder, LSTMConfig), "lstm"),
        ("model.memory.kind", room.memory.kind, isinstance(room.memory, memories), "none, key_value or attentive"),
        ("model.head.kind", room.head.kind, isinstance(room.head, SoftmaxConfig), "softmax"),
        ("data.tokenizer", data.tokenizer, not data.of_pieces, "words, characters or bytes"),
        ("data.lines", data.lines, data.lines == "as-written", "as-written"),
    )
    for field, value, can, limit in rules:
        if not can:
            way_out = f"Take `spanlm serve {model.folder}`, which reads with every run"
            raise InputError(field, value, f"must be {limit} for a live page", way_out)


def _weights(network: LanguageModel) -> dict[str, Tensor]:
    """Return the weights that the script reads: W_c in halves; not the second bias of torch's LSTM, which is 0."""
    weights: dict[str, Tensor] = {name: w for name, w in network.named_parameters() if ".bias_hh" not in name}
    weights.pop("memory.slope.raw", None)
    if (merge := weights.pop("memory.merge.weight", None)) is not None:
        size = network.memory.readout_size
        weights |= {"memory.predict.weight": merge[:, :size], "memory.read.weight": merge[:, size:]}
    return weights


def _memory(network: LanguageModel) -> dict[str, Any] | None:
    """Return where a memory looks and how its scores fall by lag; None: it does not look."""
    config, memory = network.config.memory, network.memory
    if config.slots == 0:
        return None
    slope = 0.0 if memory.half_life is None else math.log(2) / memory.half_life
    nearest = 0 if isinstance(config, AttentiveConfig) and config.includes_current else 1
    return {"parts": config.parts, "window": config.slots, "nearest": nearest, "slope": slope}
