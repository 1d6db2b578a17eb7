"""The published rows shrunk to a few units, a text for them, and what tells of a run: all by what users have.

Nothing of the package is imported but `spanlm` itself and its command line, so that whatever is moved within it, these
say whether it still computes the same.
"""

import contextlib
import hashlib
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

import spanlm
from spanlm.cli.main import main

Json = Any
Tree = dict[str, Any]

CLOCK = ("time", "tokens_per_second")
WORDS = (
    *("the", "a", "cat", "dog", "sat", "ran", "on", "mat", ".", "name", "is"),
    *("bound", "to", "object", "naïve", "猫", "He", "said", "Zebra", "N"),
)

SMALL = {
    "embedding_size": 12,
    "hidden_size": 12,
    "last_size": 12,
    "experts": 3,
    "buffer_size": 15,
    "span_length": 3,
    "annealing_epochs": 1,
    "batch_size": 4,
    "length": 7,
    "length_spread": 1.0,
    "longest_over": 2,
    "group_size": 2,
    "eval_batch_size": 3,
    "switch_after": 1,
    "log_every": 1,
}
"""Fields made small wherever a row has them and they are not null or nought."""


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Bits are promised for a fixed number of threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def make_text(folder: Path) -> Path:
    """Write a corpus folder: some documents of lines; valid and test hold words that the training part lacks."""
    folder.mkdir(parents=True, exist_ok=True)
    draw = 1
    for split, count in {"train": 16, "valid": 10, "test": 12}.items():
        lines = ["the <unk> sat on the mat ." if split == "train" else "the zebra <unk> sat ."]
        for number in range(1, count):
            words = []
            for _ in range(3 + number % 4):
                draw = draw * 1103515245 + 12345 & 0x7FFFFFFF
                words.append(WORDS[(draw >> 16) % len(WORDS)])
            lines.append("" if number % 6 == 0 else " ".join([*words, "."]))
        (folder / f"{split}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def shrunk(name: str, corpus: str, **training: Any) -> spanlm.RunConfig:
    """Return a published row in small, over the text of `make_text`."""
    tree = _small(spanlm.find_preset(name).config.to_tree())
    min_count = None if tree["data"]["tokenizer"] == "bytes" else 1
    tree["data"] |= {"corpus": corpus, "min_count": min_count, "max_size": None, "documents": "blank-line"}
    finetune, schedule = tree["training"]["finetune"], tree["training"]["schedule"]
    if finetune["stages"]:
        finetune |= {"stages": min(finetune["stages"], 2), "epochs": 1}
    if schedule["kind"] == "step":
        schedule["full_epochs"] = 1
    if schedule["kind"] == "milestones":
        schedule["milestones"] = [1]
    if tree["model"]["memory"].get("order") == 5:
        tree["model"]["encoder"]["hidden_size"] = 15  # which the order divides
    tree["training"] |= {"epochs": 2, "device": "cpu", "patience": None, **training}
    return spanlm.RunConfig.from_tree(tree)


def _small(tree: Tree) -> Tree:
    return {
        name: _small(value) if isinstance(value, dict) else SMALL[name] if name in SMALL and value else value
        for name, value in tree.items()
    }


def command(*arguments: object) -> str:
    """Run `spanlm ARGUMENTS` here; return what it printed."""
    printed = io.StringIO()
    with one_thread(), contextlib.redirect_stdout(printed):
        status = main([str(argument) for argument in arguments])
    assert status == 0, arguments
    return printed.getvalue()


def trained(config: spanlm.RunConfig, folder: Path) -> Path:
    """Train, or go on with, a run on one thread."""
    with one_thread():
        spanlm.train(config, spanlm.load_corpus(config.data), folder, resume=True)
    return folder


def rows(folder: Path) -> list[Tree]:
    """Return metrics.jsonl but for its clock."""
    lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [{name: value for name, value in json.loads(line).items() if name not in CLOCK} for line in lines]


def evaluated(folder: Path, corpus: str) -> Tree:
    """Return the NLL of valid and test."""
    words = ("evaluate", folder, "--corpus", corpus, "--json", "--split")
    return {split: json.loads(command(*words, split))["nll"] for split in ("valid", "test")}


def tensors(folder: Path) -> dict[str, torch.Tensor]:
    """Return what model.safetensors holds, by name."""
    with safe_open(folder / "model.safetensors", framework="pt") as file:
        return {name: file.get_tensor(name) for name in sorted(file.keys())}


def shapes(folder: Path) -> dict[str, str]:
    """Return dtype and shape of every tensor."""
    return {name: f"{str(x.dtype).removeprefix('torch.')} {list(x.shape)}" for name, x in tensors(folder).items()}


def weights_sha256(folder: Path) -> str:
    """Return 64 bits of a digest of all tensors: their names, dtypes, shapes and bytes."""
    digest = hashlib.sha256(json.dumps(shapes(folder)).encode())
    for tensor in tensors(folder).values():
        digest.update(tensor.contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]
