"""The words a model knows, and their ids."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spanlm.errors import InputError, require
from spanlm.store.files import regular, replacing, written

EOS = "<eos>"
UNK = "<unk>"
FORMAT = 1
PIECES = "tokenizer.json"
_RESTORE = "restore it from the run it belongs to"


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """An immutable list of words; a word's id is its index, `hash` the list's SHA-256 (hex).

    `<eos>` is the end of a line; `<unk>` stands for every word that is not listed. With `pieces`, the content of a
    tokenizer.json that has the words as its tokens, `hash` is the SHA-256 of that content.

    Raises:
        InputError: A word is empty, has white space, is not Unicode or occurs twice; `<eos>` or `<unk>` is missing.
    """

    words: tuple[str, ...]
    pieces: str = field(default="", repr=False)
    eos_id: int = field(init=False, compare=False, repr=False)
    unk_id: int = field(init=False, compare=False, repr=False)
    hash: str = field(init=False, compare=False)
    _ids: dict[str, int] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        try:
            listed = "\n".join(self.words).encode()
        except UnicodeEncodeError as error:
            raise InputError("vocabulary", limit="a word is not Unicode text; build it from a text again") from error
        between = listed.count(b"\n") == len(self.words) - 1 and not re.search(rb"[ \t\r\v\f]", listed)
        if not between or not all(self.words):
            raise InputError("vocabulary", limit="a word is empty or holds white space; build it from a text again")
        ids = {word: index for index, word in enumerate(self.words)}
        if len(ids) != len(self.words):
            repeated = next(word for index, word in enumerate(self.words) if ids[word] != index)
            raise InputError("vocabulary", limit=f"{repeated!r} is listed twice; each word has one id")
        for special in (EOS, UNK):
            if special not in ids:
                raise InputError("vocabulary", limit=f"{special} is missing; every vocabulary needs {EOS} and {UNK}")
        object.__setattr__(self, "_ids", ids)
        object.__setattr__(self, "eos_id", ids[EOS])
        object.__setattr__(self, "unk_id", ids[UNK])
        object.__setattr__(self, "hash", hashlib.sha256(self.pieces.encode() or listed).hexdigest())

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: object) -> bool:
        return word in self._ids

    def __repr__(self) -> str:
        return f"Vocabulary({len(self)} words, hash {self.hash[:12]})"

    def id(self, word: str) -> int:
        """Return the id of `word`, or the id of `<unk>` for an unknown word."""
        return self._ids.get(word, self.unk_id)

    def word(self, id: int) -> str:
        """Return the word with this id; InputError: there is no such id."""
        require(0 <= id < len(self), "word id", id, f"from 0 to {len(self) - 1}")
        return self.words[id]

    def encode(self, words: Iterable[str]) -> list[int]:
        return [self._ids.get(word, self.unk_id) for word in words]

    @classmethod
    def from_counts(cls, counts: Mapping[str, int], min_count: int = 1, max_size: int | None = None) -> Vocabulary:
        """Choose frequent words; `counts` are in order of first appearance, which becomes the order of ids.

        Words rarer than `min_count` are left out, and at most `max_size` stay; of equally frequent words, earlier ones
        stay. `<eos>` and `<unk>` always stay, and count for `max_size`; they come last if the text lacks them.

        Raises:
            InputError: `min_count` is below 1 or `max_size` below 2.
        """
        require(min_count >= 1, "min_count", min_count, "at least 1")
        require(max_size is None or max_size >= 2, "max_size", max_size, f"at least 2 ({EOS} and {UNK})")
        frequent = [word for word, count in counts.items() if count >= min_count and word not in (EOS, UNK)]
        if max_size is not None:
            frequent = sorted(frequent, key=lambda word: -counts[word])[: max_size - 2]
        chosen = {*frequent, EOS, UNK}
        absent = [special for special in (EOS, UNK) if special not in counts]
        return cls((*(word for word in counts if word in chosen), *absent))

    @classmethod
    def from_pieces(cls, content: str) -> Vocabulary:
        """Return the vocabulary of a tokenizer.json of this package; InputError: its ids are not 0 to size − 1."""
        return cls(tuple(of_pieces(json.loads(content))), content)

    def save(self, path: str | Path) -> None:
        """Write `{"format": 1, "hash": ..., "words": [...]}`, or the pieces, atomically; RunError: the disk refuses."""
        content = {"format": FORMAT, "hash": self.hash, "words": list(self.words)}
        with written(Path(path), "Choose another folder."), replacing(Path(path)) as file:
            file.write((self.pieces or json.dumps(content, ensure_ascii=False, indent=0)).encode())

    @classmethod
    def load(cls, path: str | Path) -> Vocabulary:
        """Read a file of `save`; InputError: it is missing or damaged, or its hash does not match its words."""
        try:
            text = regular(Path(path), 2**28).read_text("utf-8")
            content = json.loads(text)
            if "model" in content:
                return cls.from_pieces(text)
            vocabulary = cls(tuple(content["words"]))
        except OSError as error:
            raise InputError(f"{path}: cannot read the vocabulary ({error.strerror}); {_RESTORE}") from error
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            problem = 'not a vocabulary, which is a JSON object with a list of words under "words"'
            if Path(path).name == PIECES:
                problem = "not the pieces of a run, which are a JSON object with the tokens of a model"
            raise InputError(f"{path}: {problem}{cause(error)}; {_RESTORE}") from error
        require(content.get("format") == FORMAT, f"{path}: format", content.get("format"), f"{FORMAT}")
        if content.get("hash") != vocabulary.hash:
            raise InputError(
                f"{path}: its hash {content.get('hash')} does not match its words ({vocabulary.hash}); "
                f"the file was changed: {_RESTORE}"
            )
        return vocabulary


def cause(error: Exception) -> str:
    """Return ` (why)` for an error of a file's content that tells readers something, else nothing."""
    return f" ({error})" if isinstance(error, InputError | json.JSONDecodeError) else ""


def of_pieces(content: Mapping[str, Any], *, whole: bool = True) -> dict[str, int]:
    """Return the tokens of a tokenizer.json with their ids, in the order 0, 1, and so on.

    Raises:
        InputError: an id is missing, or, if `whole`, <eos> or <unk> is.
    """
    vocab = content["model"]["vocab"]
    ids = dict(vocab) if isinstance(vocab, dict) else {piece: id for id, (piece, _) in enumerate(vocab)}
    ids |= {token["content"]: token["id"] for token in content["added_tokens"]}
    tokens = dict(sorted(ids.items(), key=lambda item: item[1]))
    if [*tokens.values()] != [*range(len(tokens))]:
        raise InputError(f"{PIECES}: its {len(tokens):,} pieces do not have the ids 0 to {len(tokens) - 1:,}")
    if whole and not {EOS, UNK} <= tokens.keys():
        raise InputError(f"{PIECES}: lacks {EOS} or {UNK}; {_RESTORE}")
    return tokens
