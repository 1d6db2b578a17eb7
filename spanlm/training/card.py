"""The model card of a run, README.md: what the model is, what it read, what was measured, and what it is not for.

Its front matter is the YAML that the hub of Hugging Face reads. All of it is known of the corpus or recorded in the
run's folder; no path of the machine is in it.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from spanlm.config import RunConfig
from spanlm.data.config import CORPORA, DEMO, DataConfig, Split, corpus_licence, corpus_title, is_exact
from spanlm.errors import SpanlmError, named
from spanlm.models.counting import count_configured
from spanlm.models.language_model import ModelConfig
from spanlm.scoring.tally import perplexity
from spanlm.store.checkpoints import load_last_position
from spanlm.store.files import regular, replace_file, run_name, written
from spanlm.store.provenance import starts
from spanlm.store.run_folder import CHECKPOINTS, epoch_rows

CARD = "README.md"
_MARK = "<!-- spanlm wrote this card; SHA-256 of what is above: {} -->\n"
_SPANLM = """\
```python
import spanlm

model = spanlm.load("path/to/this/folder")
surprisals = [(word.word, word.surprisal) for word in model.score("some words")]
```

A recurrent model also goes to `transformers`: `spanlm export path/to/this/folder --to hf --out DIR`."""
_TRANSFORMERS = """\
```python
from transformers import AutoModelForCausalLM, AutoTokenizer

model = AutoModelForCausalLM.from_pretrained("path/to/this/folder", trust_remote_code=True)
tokenizer = AutoTokenizer.from_pretrained("path/to/this/folder")
```

That runs one line, which imports the package `spanlm`. Logits are log-probabilities; the tokenizer {opens} before a
text."""
_USES = """\
For research and teaching. Do not use it to decide about people, to state facts, or to write text that is taken for a
person's: it repeats what its corpus has, errors and slurs too. Perplexities compare only with those of the same text,
vocabulary and count. These weights have no licence yet: who shares them chooses one that the corpus's allows."""

Measured = tuple[Split, float, str]
"""A split, the perplexity on it, and its protocol in words."""


@dataclass(frozen=True, kw_only=True)
class Card:
    """The content of a card."""

    name: str
    tags: Sequence[str]  # for searches on the hub
    parts: Mapping[str, tuple[str, str]]  # description and equation of each part of the model; an equation may be empty
    size: str  # parameters or n-grams
    vocabulary_size: int
    data: DataConfig
    texts: Mapping[str, str]  # SHA-256 of each split, if recorded
    measured: Sequence[Measured]
    training: str
    opened: bool | None = None  # of an export: whether its tokenizer puts <eos> before a text; None: a run's folder

    @property
    def text(self) -> str:
        """The card in Markdown, with a signature as its last line."""
        front = yaml.safe_dump(self._front, sort_keys=False, allow_unicode=True, width=10**6)
        return _signed(f"---\n{front}---\n\n" + "\n".join(self._lines) + "\n")

    @property
    def _front(self) -> dict[str, Any]:
        corpus, title = self.data.corpus, corpus_title(self.data.corpus)
        known = corpus in (DEMO, *CORPORA)
        dataset = {"type": corpus if known else re.sub(r"[^\w.-]+", "-", title), "name": title}
        results: list[dict[str, Any]] = [
            {
                "task": {"type": "text-generation", "name": "language modelling"},
                "dataset": {**dataset, "split": "validation" if split == "valid" else split},
                "metrics": [{"type": "perplexity", "name": f"perplexity per token ({how})", "value": round(ppl, 4)}],
            }
            for split, ppl, how in self.measured
        ]
        front: dict[str, Any] = {"language": "en"} if known else {}
        front["library_name"] = "spanlm" if self.opened is None else "transformers"
        front |= {"pipeline_tag": "text-generation", "tags": ["spanlm", "language-model", *self.tags]}
        front |= {"datasets": [corpus]} if known else {}
        return front | ({"model-index": [{"name": self.name, "results": results}]} if results else {})

    @property
    def _lines(self) -> list[str]:
        corpus, opens = self.data.corpus, "puts `<eos>`" if self.opened else "puts nothing"
        hashes = ", ".join(f"{split} `{digest}`" for split, digest in self.texts.items())
        unit = "tokens, of any text" if is_exact(self.data.effective_tokenizer) else "words; any other is `<unk>`"
        rows = [f"| {split} | {ppl:.2f} | {how.replace('<eos>', '`<eos>`')} |" for split, ppl, how in self.measured]
        table = ["| part | perplexity per token | how it was counted |", "|---|---|---|", *rows]
        return [
            *(f"# {self.name}", "", f"A language model: {', '.join(what for what, _ in self.parts.values())}.", ""),
            *(f"* {part}: {what}{f': `{equation}`' * bool(equation)}" for part, (what, equation) in self.parts.items()),
            *(f"* size: {self.size}", f"* vocabulary: {self.vocabulary_size:,} {unit}"),
            *(f"* corpus: {corpus_title(corpus)}; its licence: {corpus_licence(corpus) or 'not known to spanlm'}",),
            *(f"* SHA-256 of its texts: {hashes or 'not recorded'}", f"* training: {self.training}"),
            *("", "## Measured", "", *(table if rows else ["No number is recorded for these weights."])),
            *("", "## Load", "", _SPANLM if self.opened is None else _TRANSFORMERS.format(opens=opens)),
            *("", "## Uses", "", _USES, ""),
        ]


def run_card(
    folder: Path, config: RunConfig, words: int, network: ModelConfig | None = None, *, opened: bool | None = None
) -> Card:
    """Return the card of a run with a vocabulary of so many `words`; that of a changed `network` has no perplexity."""
    network, recorded = network or config.model, dict[str, Any]()
    with suppress(SpanlmError):  # damaged, which loading does not mind
        recorded = {name: value for start in starts(folder) for name, value in start.items()}
    count = count_configured(network, words)
    rooms = {"encoder": network.encoder, "memory": network.memory, "head": network.head}
    parts = {name: (room.description, room.equation) for name, room in rooms.items()}
    parts["head"] = network.head.description, network.memory.mixing + network.head.equation
    loss = best_loss(folder) if network == config.model else None
    protocol = recorded.get("validation", "as `spanlm train` validates")
    began = "began with the weights of another run, " * ("started_from_weights" in recorded)
    return Card(
        name=run_name(folder),
        tags=[room.kind.replace("_", "-") for room in (network.encoder, network.memory) if room.kind != "none"],
        parts=parts,
        size=f"{count.total:,} parameters, {count.model:,} without the word representations",
        vocabulary_size=words,
        data=config.data,
        texts=recorded.get("texts", {}),
        measured=[] if loss is None else [("valid", perplexity(loss), protocol)],
        training=f"{began}seed {config.training.seed}, spanlm {recorded.get('spanlm', 'of unknown version')}",
        opened=opened,
    )


def best_loss(folder: Path) -> float | None:
    """Return the validation loss of the weights, nats a token; None: it is not recorded."""
    with suppress(SpanlmError):
        if position := load_last_position(folder / CHECKPOINTS):
            return position.get("best_loss")
        losses = [row["loss"] for row in epoch_rows(folder) if isinstance(row.get("loss"), int | float)]
        return min(filter(math.isfinite, losses), default=None)
    return None


def write_card(folder: Path, card: Card) -> str | None:
    """Write a card; if README.md is not as spanlm wrote it, leave it and return a note. RunError: the disk refused."""
    path = folder / CARD
    if os.path.lexists(path) and not _is_ours(path):
        return f"{path}: was written or changed by another hand, and stays; move it away for a new card"
    with written(path, f"Make room and go on with {named('resume=True')}."):
        replace_file(path, card.text.encode())
    return None


def _signed(text: str) -> str:
    return text + _MARK.format(hashlib.sha256(text.encode()).hexdigest())


def _is_ours(path: Path) -> bool:
    with suppress(OSError, UnicodeDecodeError):
        text = "" if path.is_symlink() else regular(path, 2**20).read_text(encoding="utf-8")
        return _signed("".join(text.splitlines(keepends=True)[:-1])) == text
    return False
