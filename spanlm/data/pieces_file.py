r"""A tokenizer.json of pieces that keep every byte: learned from a text, or read from a file of another recipe.

Learned pieces are those of the trainers of `tokenizers`: merges of the most frequent pairs (BPE), or the pieces of the
most probable unigram model, which a larger vocabulary is pruned to. Both begin with the 256 bytes.

Files that are read, and what changes:

* tokenizer.json whose pieces are strings of bytes (GPT-2, Llama 3): nothing is put before a line (`add_prefix_space`
  is off), and special tokens that are written are text. A normaliser that changes text is refused.
* SentencePiece, as `.model` or tokenizer.json (kinds bpe and unigram): the pieces and their scores. The text is not
  normalised, no space is put before a line, and characters without a piece are their bytes, which get the score of
  SentencePiece's unknown characters.
"""

from __future__ import annotations

import json
import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from copy import deepcopy
from typing import Any

from spanlm.data.config import BYTES, TrainedPieces
from spanlm.data.subwords import ESCAPED, LEARNED_CUT, PRINTABLE, SENTENCEPIECE_CUT, Pieces, tokenizers
from spanlm.data.vocabulary import EOS, UNK, Vocabulary, cause, of_pieces
from spanlm.errors import InputError
from spanlm.store.files import expanded, regular

_LARGEST = 1 << 28
_MARK = "▁"
_UNSEEN = 10.0
"""How much less the score of a byte is than the least score of a piece."""
_NEVER = -1e9
_STEP = 1e-4
"""Between the scores of bytes that a unigram model has no use for."""
_KINDS = {1: "unigram", 2: "bpe", 3: "word", 4: "char"}
_NORMAL = 1, 4
_PROBES = (
    "".join(map(chr, range(0x20, 0x7F))),
    "  A  b ",
    "a\tb\r",
    "é e\u0301 Å ﬁ İ 漢字 😀 ▁ Ġ\u00a0\u2028",
    "<s> x</s>",
)

MOST_LEARNED = 100 << 20
"""Bytes of a text to learn pieces from; of a longer one every n-th megabyte. Trainers hold all different words: two and
a half million take 2 GB."""

PIECES_FORMAT = 2
"""Version of `learned`; raise it to learn cached pieces again."""


def learned(kind: TrainedPieces, lines: Iterable[str], size: int) -> Vocabulary:
    """Learn `size` pieces from lines, or as many as they give."""
    library = tokenizers()
    alphabet = {"initial_alphabet": [*PRINTABLE], "special_tokens": [EOS, UNK], "show_progress": False}
    if kind == "bpe":
        model, trainer = library.models.BPE(), library.trainers.BpeTrainer(vocab_size=size, **alphabet)
    else:
        model = library.models.Unigram()
        trainer = library.trainers.UnigramTrainer(vocab_size=size, unk_token=UNK, **alphabet)
    learner = library.Tokenizer(model)
    split = library.pre_tokenizers.Split(library.Regex(LEARNED_CUT["Regex"]), "isolated")
    learner.pre_tokenizer = library.pre_tokenizers.Sequence([split, _to_bytes()])
    learner.decoder = library.decoders.ByteLevel()
    # a written <unk> is a token already
    lines = (line.replace(UNK, "") for line in lines)
    learner.train_from_iterator(lines if kind == "bpe" else _with_whole_words(lines, split), trainer)
    content = json.loads(learner.to_str())
    if kind == "unigram":
        content["model"]["vocab"] = _settled(content["model"]["vocab"])
    return _with_marks(content)


def _with_whole_words(lines: Iterable[str], split: Any) -> Iterator[str]:
    """Yield the lines, and then all that is cut out of them more than once, each written twice.

    The library tries as pieces only strings that are in two different words, or twice in one, however often that one
    occurs; without this it would try few whole words.
    """
    counts = Counter[str]()
    for line in lines:
        counts.update(word for word, _ in split.pre_tokenize_str(line))
        yield line
    for word, count in counts.items():
        if count > 1 and len(bare := word.lstrip(" ")) > 1:
            yield word + bare


def _to_bytes() -> Any:
    return tokenizers().pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)


def _settled(vocab: list[tuple[str, float | None]]) -> list[tuple[str, float]]:
    """Round scores and sort pieces, which the trainer sums and lists in the random order of its hash table."""
    # a text without any piece gives scores that are no numbers, null in JSON
    scores = {piece: round(score or 0.0, 6) for piece, score in vocab if piece not in (EOS, UNK)}
    least = min((score for piece, score in scores.items() if len(piece) > 1), default=0.0)
    # to bytes that it has no use for the trainer gives scores from the least one up, in that order, too
    low = min(map(scores.__getitem__, PRINTABLE))
    idle = [piece for piece in PRINTABLE if scores[piece] < low + _STEP * len(PRINTABLE)]
    scores |= {piece: round(min(least, low) - 1 - n * _STEP, 6) for n, piece in enumerate(idle)}
    ordered = sorted(scores.items(), key=lambda item: (-item[1], item[0]))
    return [(EOS, _NEVER), (UNK, _NEVER), *ordered]


def read_pieces(path: str, kind: TrainedPieces) -> Vocabulary:
    """Read the pieces of a tokenizer.json or a SentencePiece `.model`.

    Raises:
        InputError: the file cannot be read, is cut short, is of another kind, or its pieces do not keep every byte.
    """
    file = expanded(path)
    try:
        data = regular(file, _LARGEST).read_bytes()
    except OSError as error:
        raise InputError("data.pieces", path, f"cannot be read: {error.strerror}") from error
    try:
        vocabulary = _of_json(data, kind) if data.lstrip()[:1] == b"{" else _of_model(data, kind)
        _require_exact(vocabulary)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, struct.error) as error:
        if isinstance(error, InputError):
            raise InputError("data.pieces", path, str(error)) from None
        why = f"is no tokenizer.json and no SentencePiece model, or is cut short{cause(error)}"
        raise InputError("data.pieces", path, why, "Copy it again.") from error
    return vocabulary


def _of_json(data: bytes, kind: TrainedPieces) -> Vocabulary:
    content = json.loads(data)
    model = content["model"]
    # older files do not name the model
    name = model.get("type", "BPE" if "merges" in model else "Unigram" if isinstance(model["vocab"], list) else "other")
    _require_kind(name.lower(), kind)
    if "ByteLevel" in json.dumps([content.get(part) for part in ("normalizer", "pre_tokenizer", "decoder")]):
        content.setdefault("normalizer", None)
        if not model.get("dropout") and (unchanged := _with_marks(deepcopy(content))).pieces.encode() == data:
            return unchanged  # the file of a run, whose vocabulary it stays
        _without_prefix(content)
        content["post_processor"] = content["truncation"] = content["padding"] = None
        model.pop("dropout", None)  # BPE dropout cuts at random
        return _with_marks(content)
    # those of bytes have no score of their own, but 0, the best
    special = {token["content"] for token in content.get("added_tokens") or ()} | {*ESCAPED}
    if kind == "unigram":
        return _unigram([(piece, score) for piece, score in model["vocab"] if piece not in special])
    merges = [tuple(pair.split(" ") if isinstance(pair, str) else pair) for pair in model["merges"]]
    return _bpe([piece for piece in model["vocab"] if piece not in special], merges)


def _require_kind(model_kind: str, kind: TrainedPieces) -> None:
    if model_kind not in ("bpe", "unigram"):
        raise InputError(f"its pieces are of the kind {model_kind}; there are bpe and unigram")
    if model_kind != kind:
        raise InputError(f"its pieces are of the kind {model_kind}, not {kind}: take data.tokenizer={model_kind}")


def _without_prefix(part: Any) -> None:
    """Put no space before a line."""
    for value in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
        _without_prefix(value)
    if isinstance(part, dict) and "add_prefix_space" in part:
        part["add_prefix_space"] = False


def _with_marks(content: dict[str, Any]) -> Vocabulary:
    r"""Return the vocabulary with <eos>, which other programs read at `\n`, and <unk>, which is written so."""
    tokens = of_pieces(content, whole=False)
    added = [token for token in content["added_tokens"] if token["content"] not in (EOS, UNK)]
    plain = {"single_word": False, "lstrip": False, "rstrip": False}
    for mark in (EOS, UNK):
        id, is_eos = tokens.setdefault(mark, len(tokens)), mark == EOS
        added.append({"id": id, "content": mark, **plain, "normalized": is_eos, "special": is_eos})
    line_end = {"type": "Replace", "pattern": {"String": "\n"}, "content": EOS}
    changes = [change for change in [content["normalizer"]] if change not in (None, line_end)]
    content["normalizer"] = {"type": "Sequence", "normalizers": [*changes, line_end]} if changes else line_end
    content["added_tokens"] = sorted(added, key=lambda token: token["id"])
    return Vocabulary.from_pieces(json.dumps(content, ensure_ascii=False, separators=(",", ":")))


def _require_exact(vocabulary: Vocabulary) -> None:
    """Refuse pieces that do not give back a text of hard cases, or lack a byte."""
    if lost := [byte for byte, character in enumerate(PRINTABLE) if byte >= 0x20 and character not in vocabulary]:
        raise InputError(f"its pieces lack {len(lost)} of the {BYTES} bytes, so some text would be unknown")
    pieces = Pieces(vocabulary)
    for probe in _PROBES:
        if (back := pieces.text(pieces.tokens(probe))) != probe:
            change = f"it reads {probe!r} as {back!r}: its normalizer or pre_tokenizer changes text"
            raise InputError(f"{change}, and text must come back byte for byte")


# --- SentencePiece ---


def _of_model(data: bytes, kind: TrainedPieces) -> Vocabulary:
    """Read a SentencePiece model, a protocol buffer: pieces (field 1) and the trainer's settings (field 2)."""
    pieces, model_kind = list[tuple[str, float]](), 1
    for number, value in _fields(data):
        if number == 1:
            piece = dict(_fields(value))
            if piece.get(3, 1) in _NORMAL:
                pieces.append((piece[1].decode(), struct.unpack("<f", piece.get(2, bytes(4)))[0]))
        elif number == 2:
            model_kind = dict(_fields(value)).get(3, 1)
    if not pieces:
        raise ValueError("it has no pieces")
    _require_kind(_KINDS.get(model_kind, str(model_kind)), kind)
    if kind == "unigram":
        return _unigram(pieces)
    best_first = sorted(pieces, key=lambda scored: -scored[1])
    return _bpe([piece for piece, _ in best_first])


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """Yield the number and the value of each field of a protocol buffer; InputError: it is cut short."""
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            value, shift, at = value | (data[at] & 0x7F) << shift, shift + 7, at + 1
            if data[at - 1] < 0x80:
                return value

    while at < len(data):
        number, wire = divmod(varint(), 8)
        if wire == 0:
            yield number, varint()
            continue
        size = varint() if wire == 2 else {1: 8, 5: 4}[wire]
        if at + size > len(data):
            ends = f"a field ends at byte {at + size}, and the file at {len(data)}"
            raise InputError(f"is cut short: {ends}. Copy it again.")
        yield number, data[at : at + size]
        at += size


def _printed(piece: str) -> str:
    """Return a piece of SentencePiece as bytes, printable."""
    return "".join(PRINTABLE[byte] for byte in piece.replace(_MARK, " ").encode())


def _of_pieces(model: dict[str, Any]) -> Vocabulary:
    library = tokenizers()
    split = library.pre_tokenizers.Split(SENTENCEPIECE_CUT["String"], "merged_with_next")
    shell = library.Tokenizer(library.models.BPE())
    shell.pre_tokenizer = library.pre_tokenizers.Sequence([split, _to_bytes()])
    shell.decoder = library.decoders.ByteLevel()
    content = json.loads(shell.to_str())
    content["model"] = model
    return _with_marks(content)


def _unigram(pieces: Sequence[tuple[str, float]]) -> Vocabulary:
    """Return the unigram model of SentencePiece's pieces and scores."""
    scores = dict.fromkeys((EOS, UNK), _NEVER)
    for piece, score in pieces:
        scores.setdefault(_printed(piece), score)
    least = min(score for _, score in pieces) - _UNSEEN
    for byte in PRINTABLE:
        scores.setdefault(byte, least)
    return _of_pieces({"type": "Unigram", "unk_id": 1, "vocab": list(scores.items()), "byte_fallback": False})


def _bpe(pieces: Sequence[str], merges: Sequence[tuple[str, str]] | None = None) -> Vocabulary:
    """Return the BPE of SentencePiece's pieces, the best first; the bytes of its characters are merged before all."""
    vocabulary = dict.fromkeys((EOS, UNK, *PRINTABLE))
    ranked = list[tuple[str, str]]()
    for character in sorted({character for piece in pieces for character in piece.replace(_MARK, " ")}):
        printed = _printed(character)
        for end in range(1, len(printed)):
            ranked.append((printed[:end], printed[end]))
            vocabulary[printed[: end + 1]] = None
    known = set(pieces)
    if merges is None:
        cuts = ((piece[:at], piece[at:]) for piece in pieces for at in range(1, len(piece)))
        merges = [cut for cut in cuts if known.issuperset(cut)]
    ranked += [(_printed(left), _printed(right)) for left, right in merges]
    vocabulary |= dict.fromkeys(map(_printed, pieces))
    vocabulary |= dict.fromkeys(left + right for left, right in ranked)
    ids = {piece: id for id, piece in enumerate(vocabulary)}
    model = {"type": "BPE", "vocab": ids, "merges": [list(pair) for pair in dict.fromkeys(ranked)]}
    return _of_pieces(model | {"fuse_unk": False, "byte_fallback": False})
