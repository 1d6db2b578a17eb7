"""Measure how exact the adapters to other libraries are: `python -m results.interop RUN [ONLY …]`, in the repository.

Writes results/interop.jsonl: every preset, shrunken, through `transformers`; then `lm-eval`, `minicons` and spanlm on
the first 50 lines of Penn Treebank's valid part ($SPANLM_DATA) and on pairs, with RUN, a model of that corpus.
"""

import json
import math
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from lm_eval.models.huggingface import HFLM
from minicons.scorer import IncrementalLMScorer
from transformers import AutoModelForCausalLM

import spanlm
from results.records import HERE, write
from spanlm.interop.lm_eval import SpanlmLM
from spanlm.store.machine import processor_name
from spanlm.store.provenance import code_version
from tests.goldens.small import make_text, shrunk
from tests.interop.equalities import cut, farthest, padded, same_beams

LINES = 50
PAIRS = HERE / "rescoring" / "pairs.jsonl"
TEXT = ["the cat sat on the mat .", "a zebra ran", "He said the name is bound to the object ."]


@torch.no_grad()
def surprisals(model: Any, tokenizer: Any, text: str) -> list[float]:
    """Bits of each word of a line by the exported model's logits, after the tokenizer's <eos> if it has one."""
    ids = tokenizer(text, return_tensors="pt").input_ids
    log_p = model(ids).logits[0, :-1].gather(-1, ids[0, 1:, None]).squeeze(-1)
    bits: list[float] = (-log_p.double() / math.log(2)).tolist()
    return bits


def scored(run: spanlm.TrainedModel, text: str) -> list[float]:
    """The same by `spanlm score`; words that are only read are left out."""
    found = [row.surprisal for row in run.score(text)]
    return [bits for bits in found if not math.isnan(bits)]


def largest(pairs: Iterator[tuple[Sequence[float], Sequence[float]]]) -> float:
    """Return the largest difference of two lists, over pairs of lists."""
    return max(abs(a - b) for one, other in pairs for a, b in zip(one, other, strict=True))


@torch.no_grad()
def preset_row(run: spanlm.TrainedModel, folder: Path) -> dict[str, Any]:
    """Export a model, and compare."""
    model, tokenizer = spanlm.to_hf(run)
    model.save_pretrained(folder)
    again = AutoModelForCausalLM.from_pretrained(folder)
    ids = torch.randint(2, len(run.vocabulary), (3, 9), generator=torch.Generator().manual_seed(2))
    return {
        "cut": cut(model, ids),
        "padding": {side: padded(model, ids, left=side == "left") for side in ("left", "right")},
        "beams_equal": same_beams(model, ids),
        "saved_equal": farthest(again(ids).logits, model(ids).logits) == 0.0,
        "surprisal_bits": largest((surprisals(model, tokenizer, text), scored(run, text)) for text in TEXT),
    }


def presets() -> dict[str, Any]:
    """Train every preset in small, and compare."""
    rows = {}
    with tempfile.TemporaryDirectory() as place:
        folder, text = Path(place), make_text(Path(place) / "text")
        for name in spanlm.PRESETS:
            config = shrunk(name, str(text))
            spanlm.train(config, spanlm.load_corpus(config.data), folder / name)
            run = spanlm.load(folder / name, "cpu")
            assert isinstance(run, spanlm.TrainedModel)
            rows[name] = preset_row(run, folder / name / "hf")
    return rows


def by_minicons(model: Any, tokenizer: Any, texts: list[str]) -> list[list[float]]:
    """Bits of each word."""
    scorer = IncrementalLMScorer(model, "cpu", tokenizer=tokenizer)
    found = scorer.token_score(texts, surprisal=True, base_two=True)
    return [[bits for _, bits in words[1:]] for words in found]


def by_lm_eval(model: Any, texts: list[str]) -> list[float]:
    """Bits of each whole text."""
    asked = [SimpleNamespace(args=("", text), task_name="t", doc_id=n) for n, text in enumerate(texts)]
    return [-log_p / math.log(2) for log_p, _ in model.loglikelihood(asked, disable_tqdm=True)]


def libraries(folder: Path) -> dict[str, Any]:
    """Compare the libraries on lines and pairs, with float32 and float64 weights."""
    run = spanlm.load(folder, "cpu")
    valid = spanlm.load_corpus(run.config.data, run.vocabulary, ["valid"])
    texts = [" ".join(line.split()) for line in islice(valid.written_lines("valid"), LINES)]
    pairs = [json.loads(line) for line in PAIRS.read_text(encoding="utf-8").splitlines()]
    both = [pair[side] for pair in pairs for side in ("sentence_good", "sentence_bad")]
    found: dict[str, Any] = {
        "lines": len(texts),
        "words": sum(len(text.split()) for text in texts),
        "pairs": len(pairs),
    }
    for name, change in {"float32": torch.nn.Module.float, "float64": torch.nn.Module.double}.items():
        found[name] = compared(run, change, texts, both)
    return found


def compared(run: Any, change: Callable[[Any], Any], texts: list[str], both: list[str]) -> dict[str, Any]:
    """Return the largest differences from `spanlm score` in bits, by word and by text; `logits`: of `transformers`."""
    change(run.model)
    model, tokenizer = spanlm.to_hf(run)
    change(model)
    words = {text: scored(run, text) for text in (*texts, *both)}
    totals = {text: [math.fsum(bits)] for text, bits in words.items()}
    every = [*texts, *both]
    scorers = {"lm_eval": SpanlmLM(run), "lm_eval_hf": HFLM(model, tokenizer=tokenizer, device="cpu", batch_size=1)}
    of_texts = {name: by_lm_eval(scorer, every) for name, scorer in scorers.items()}
    minicons = by_minicons(model, tokenizer, every)
    of_texts["minicons"] = [math.fsum(bits) for bits in minicons]
    ours = [totals[text][0] for text in every]
    return {
        "words": {
            "minicons": largest((bits, words[text]) for text, bits in zip(every, minicons, strict=True)),
            "logits": largest((surprisals(model, tokenizer, text), words[text]) for text in every),
        },
        "texts": {name: largest(iter([(bits, ours)])) for name, bits in of_texts.items()},
        "pairs_right": {name: right(bits[len(texts) :]) for name, bits in {"spanlm": ours, **of_texts}.items()},
    }


def right(bits: Sequence[float]) -> int:
    """Count pairs of which the good sentence, the first, has less surprisal."""
    return sum(good < bad for good, bad in zip(bits[::2], bits[1::2], strict=True))


def main() -> None:
    """Write the record, or the parts of it that are named, anew."""
    warnings.simplefilter("ignore")  # the libraries' own
    torch.set_num_threads(1)
    folder, *only = sys.argv[1:]
    about = {
        "command": "python -m results.interop runs/ptb",
        "training": "spanlm train demo --corpus ptb --hidden-size 120 --batch-size 64 --epochs 1 --threads 1 --no-tour",
        "machine": f"{processor_name()}, one thread",
        "versions": {name: version(name) for name in ("torch", "transformers", "lm_eval", "minicons")},
        "commit": code_version(),
    }
    parts: dict[str, Callable[[], dict[str, Any]]] = {
        "libraries": lambda: {"libraries": libraries(Path(folder))},
        "presets": presets,
    }
    for part in only or parts:
        write("interop", ({"table": part, "row": row, **about, **found} for row, found in parts[part]().items()))


if __name__ == "__main__":
    main()
