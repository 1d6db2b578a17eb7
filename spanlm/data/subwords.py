r"""Vocabularies below the word: characters, bytes, and pieces of BPE or a unigram model (extra `subword`).

Each keeps every byte of a line, white space included, so text → tokens → text is the identity, and no text is unknown.
Line ends become `<eos>` and leave the text; a `\r` before one stays. Only a byte order mark at a text's start is lost.
The string `<unk>`, which PTB and WikiText write for rare words, is the token `<unk>`, and nothing else is.

Tokens are strings without white space:

* bytes: each byte is a printable character, as in GPT-2 (Radford et al., 2019): itself if it is one of Latin-1, else
  one from U+0100 on (`Ġ` is the space).
* characters: a character that training saw is itself, and the space is `▁` (U+2581). Any other character, tabs and a
  written `▁` included, is its UTF-8 bytes, `<0xE2>` and so on, as in SentencePiece (Kudo & Richardson, 2018).
* bpe (Sennrich et al., 2016) and unigram (Kudo, 2018): strings of bytes as above. A piece has letters and combining
  marks, digits, or other characters, perhaps after a space; further white space stands by itself.

A tokenizer.json of another recipe (`data.pieces`) is used as it is if it keeps every byte; see
`spanlm.data.pieces_file`.
"""

from __future__ import annotations

import json
import re
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import accumulate, chain, islice
from typing import Any, cast, get_args

import numpy as np

from spanlm.data.config import TokenizerName, TrainedPieces, WordRule
from spanlm.data.text import place_between_characters
from spanlm.data.tokenizer import Ids, Tokenizer, Words, refuse_reserved, written_spans
from spanlm.data.vocabulary import EOS, UNK, Vocabulary
from spanlm.errors import InputError, installation

LONGEST_LINE = 1 << 22
"""Bytes of a line that is read whole; a longer one is cut before a space, or in a word if it has no such space."""

RULE = 1
"""Version of the rules; raise it to encode cached texts again."""

SPACE = "▁"
_WHITE = b" \t\r\v\f"
_REMEMBERED, _REMEMBERED_BYTES = 1 << 18, 1 << 26
_UNK = UNK.encode()


def _printable() -> tuple[str, ...]:
    """Return GPT-2's printable character for each byte."""
    latin = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAC + 1), *range(0xAE, 0xFF + 1)]
    others = {byte: chr(256 + n) for n, byte in enumerate(byte for byte in range(256) if byte not in latin)}
    return tuple(others.get(byte, chr(byte)) for byte in range(256))


PRINTABLE = _printable()
ESCAPED = tuple(f"<0x{byte:02X}>" for byte in range(256))
_BYTES = {character: byte for byte, character in enumerate(PRINTABLE)}


class Subwords(Tokenizer):
    """A tokenizer that keeps every byte of a line."""

    exact = True

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary

    @property
    def rule(self) -> str:
        return f"{type(self).__name__} {RULE}"

    @abstractmethod
    def _bytes_of(self, token: str) -> bytes:
        """Return the text of a token of the vocabulary other than `<eos>` and `<unk>`."""

    @cached_property
    def _spelling(self) -> dict[str, bytes]:
        special = {EOS: b"\n", UNK: _UNK}
        return {token: special.get(token) or self._bytes_of(token) for token in self._vocabulary.words}

    def chunks(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """Cut a text into whole lines; a very long line is cut before a space between two words.

        Without such a space in `LONGEST_LINE` bytes, it is cut between two characters. Bytes and characters stay the
        same; the pieces are then those of the parts.
        """
        rest = b""
        for piece in pieces:
            if not piece:  # stands for a title line
                yield from filter(None, [rest])
                yield piece
                rest = b""
                continue
            before, rest = len(rest), rest + piece
            if cut := rest.rfind(b"\n", before) + 1:
                yield rest[:cut]
                rest = rest[cut:]
            while len(rest) > LONGEST_LINE:
                last = _LAST_BETWEEN_WORDS.match(rest, 0, LONGEST_LINE)
                cut = last.end() if last else place_between_characters(rest[:LONGEST_LINE])
                yield rest[:cut]
                rest = rest[cut:]
        yield from filter(None, [rest])

    def tokens(self, line: str) -> list[str]:
        refuse_reserved(line)
        words = self._vocabulary.words
        return [words[id] for id in self.encode(_encoded(line).replace(b"\n", b" ")).tolist()]

    def by_word(self, line: str) -> list[list[str]]:
        """Return the tokens of each written word, with the white space before it; that at the end comes last.

        Raises:
            InputError: a token holds letters of two words.
        """
        return self.grouped(self.tokens(line))

    def grouped(self, tokens: Sequence[str]) -> list[list[str]]:
        """Group the tokens of a line, or of a part of one, as `by_word` does."""
        texts = [self._spelling[token] for token in tokens]
        ends = [end for _, end in written_spans(b"".join(texts).decode("latin-1"))]
        grouped: list[list[str]] = [[] for _ in range(len(ends) + 1)]
        for token, text, start in zip(tokens, texts, accumulate(map(len, texts), initial=0), strict=False):
            letters = text.strip(_WHITE)
            first = start + len(text) - len(text.lstrip(_WHITE)) if letters else start
            owner = int(np.searchsorted(ends, first, side="right"))
            if letters and first + len(letters) > ends[owner]:
                raise InputError(
                    f"the tokenizer reads {text.decode(errors='replace')!r} as one: its words cannot be told apart"
                )
            grouped[owner].append(token)
        return grouped

    def spelled(self, tokens: Iterable[str], at_line_start: bool = True) -> Iterator[bytes]:
        return (self._spelling[token] for token in tokens)

    @cached_property
    def word_ends(self) -> list[int]:
        return [id for id, text in enumerate(self._spelling.values()) if text.lstrip(_WHITE + b"\n") != text]

    def is_space(self, tokens: Sequence[str]) -> bool:
        return all(not self._spelling[token].strip(_WHITE) for token in tokens)


# greedy, so it begins at the end
_LAST_BETWEEN_WORDS = re.compile(rb"(?s:.*)[0-9A-Za-z\x80-\xff](?= [0-9A-Za-z\x80-\xff])")


def _encoded(line: str) -> bytes:
    try:
        # bytes that are no UTF-8 are read as lone surrogates
        return line.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise InputError(f"the text holds {line[error.start]!r}, which is half a character; write it whole") from error


def _decoded(text: bytes) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        problem = f"the text is not UTF-8 ({error.reason}), and only data.tokenizer=bytes reads other bytes"
        raise InputError(problem) from error


class _Singles(Subwords):
    """Bytes or characters, `_encode`d between the strings `<unk>`."""

    @abstractmethod
    def _encode(self, text: bytes) -> Ids: ...

    def encode(self, chunk: bytes) -> Ids:
        unk = np.array([self._vocabulary.unk_id], np.int32)
        parts = [part for text in chunk.split(_UNK) for part in (self._encode(text), unk)]
        return np.concatenate(parts[:-1])


class Bytes(_Singles):
    """Each byte is a token."""

    @staticmethod
    def vocabulary() -> Vocabulary:
        return Vocabulary((EOS, UNK, *PRINTABLE))

    @cached_property
    def _table(self) -> Ids:
        table = np.array([self._vocabulary.id(character) for character in PRINTABLE], np.int32)
        table[ord("\n")] = self._vocabulary.eos_id
        return table

    def _bytes_of(self, token: str) -> bytes:
        return bytes([_BYTES[token]])

    def _encode(self, text: bytes) -> Ids:
        ids: Ids = self._table[np.frombuffer(text, np.uint8)]
        return ids


class Characters(_Singles):
    """Each character that training saw is a token; others are their bytes."""

    @staticmethod
    def vocabulary(chunks: Iterable[bytes], min_count: int = 1) -> Vocabulary:
        """Take the characters that occur `min_count` times in a text, in the order of Unicode, and all bytes."""
        counts = np.zeros(0x110000, np.int64)
        for chunk in chunks:
            codes = _codes(chunk.replace(_UNK, b""))
            number = np.bincount(codes)
            counts[: len(number)] += number
        counts[[*_WHITE, ord("\n"), ord(SPACE)]] = 0
        return Vocabulary((EOS, UNK, *ESCAPED, SPACE, *map(chr, np.flatnonzero(counts >= min_count).tolist())))

    @cached_property
    def _table(self) -> Ids:
        """The id of each code point, -1 for one to write in bytes."""
        table = np.full(0x110000, -1, np.int32)
        single = [(ord(word), id) for id, word in enumerate(self._vocabulary.words) if len(word) == 1]
        for code, id in single:
            table[code] = id
        table[ord(" ")], table[ord(SPACE)] = self._vocabulary.id(SPACE), -1
        table[ord("\n")] = self._vocabulary.eos_id
        return table

    @cached_property
    def _byte_ids(self) -> Ids:
        return np.array([self._vocabulary.id(escaped) for escaped in ESCAPED], np.int32)

    def _bytes_of(self, token: str) -> bytes:
        if len(token) > 1:
            return bytes([int(token[3:5], 16)])
        return b" " if token == SPACE else token.encode()

    def _encode(self, text: bytes) -> Ids:
        codes = _codes(text)
        ids: Ids = self._table[codes]
        if (unseen := codes[ids < 0]).size:
            lengths = np.ones(len(ids), np.int64)
            lengths[ids < 0] = 1 + (unseen > 0x7F) + (unseen > 0x7FF) + (unseen > 0xFFFF)
            ids = np.repeat(ids, lengths)
            ids[ids < 0] = self._byte_ids[np.frombuffer("".join(map(chr, unseen.tolist())).encode(), np.uint8)]
        return ids


def _codes(text: bytes) -> np.ndarray[Any, np.dtype[np.uint32]]:
    return np.frombuffer(_decoded(text).encode("utf-32-le"), np.uint32)


def make_tokenizer(name: TokenizerName, vocabulary: Vocabulary) -> Tokenizer:
    if name == "characters":
        return Characters(vocabulary)
    if name == "bytes":
        return Bytes(vocabulary)
    return Pieces(vocabulary) if name in get_args(TrainedPieces) else Words(cast(WordRule, name), vocabulary)


# letters and marks, digits, or other characters, each perhaps after a space; other white space is alone
LEARNED_CUT = {"Regex": r" ?[\p{L}\p{M}]+| ?\p{N}+| ?[^\p{L}\p{M}\p{N} \t\n\r\v\f]+|[ \t\n\r\v\f]"}
SENTENCEPIECE_CUT = {"String": " "}
CUTS = (LEARNED_CUT, SENTENCEPIECE_CUT)


class Pieces(Subwords):
    """The pieces of a tokenizer.json, encoded by the library `tokenizers`."""

    @cached_property
    def _content(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads(self._vocabulary.pieces)
        return content

    @cached_property
    def _library(self) -> Any:
        try:
            library = tokenizers().Tokenizer.from_str(self._vocabulary.pieces)
        except Exception as error:  # the library has no narrower class
            raise InputError(f"tokenizer.json: the package tokenizers refuses it ({error})") from error
        library.no_truncation()
        library.no_padding()
        library.encode_special_tokens = True  # a special token that is written is text
        return library

    @property
    def rule(self) -> str:
        # the vocabulary's hash is that of the file
        return f"{super().rule}, tokenizers {tokenizers().__version__}"

    @cached_property
    def _added(self) -> set[str]:
        return {token["content"] for token in self._content["added_tokens"]}

    def _bytes_of(self, token: str) -> bytes:
        try:
            return token.encode() if token in self._added else bytes(_BYTES[character] for character in token)
        except KeyError:
            raise InputError(f"the piece {token!r} is no string of bytes; see data.pieces") from None

    _known_bytes = 0

    @cached_property
    def _known(self) -> dict[bytes, bytes]:
        """The ids, as int32, of strings after a space."""
        return {}

    def encode(self, chunk: bytes) -> Ids:
        return self._by_spaces(chunk) if self._cuts_at_spaces else self._lines(chunk.split(b"\n"))

    @cached_property
    def _cuts_at_spaces(self) -> bool:
        """Whether each space begins a part of a line that is cut by itself, as in all files made by this package."""
        return bool((self._content["pre_tokenizer"] or {}).get("pretokenizers", [{}])[0].get("pattern") in CUTS)

    def _lines(self, lines: list[bytes]) -> Ids:
        eos = [self._vocabulary.eos_id]
        read = self._ids([_decoded(line) for line in lines])
        ids = chain.from_iterable(chain(line, eos) for line in read)
        return np.fromiter(ids, np.int32)[:-1]

    def _ids(self, texts: list[str]) -> Iterator[list[int]]:
        return (encoded.ids for encoded in self._library.encode_batch_fast(texts, add_special_tokens=False))

    def _by_spaces(self, chunk: bytes) -> Ids:
        """Encode each different string between two spaces once: no piece has a space that is not its first byte."""
        first, *parts = chunk.split(b" ")
        start = self._lines(first.split(b"\n")).tobytes() if first else b""
        try:
            ids = b"".join(map(self._known.__getitem__, parts))
        except KeyError:
            ids = b"".join(map(self._remember(set(parts)).__getitem__, parts))
        return np.frombuffer(bytearray(start + ids), np.int32)

    def _remember(self, parts: set[bytes]) -> dict[bytes, bytes]:
        if len(self._known) > _REMEMBERED or self._known_bytes > _REMEMBERED_BYTES:
            self._known, self._known_bytes = {}, 0  # another, not emptied: a thread may be reading the old one
        known = self._known
        unseen = sorted(parts.difference(known))
        self._known_bytes += sum(map(len, unseen))
        counts = [1 + part.count(b"\n") for part in unseen]
        lines = self._ids([_decoded(line) for part in unseen for line in (b" " + part).split(b"\n")])
        for part, count in zip(unseen, counts, strict=True):
            ids = [id for line in islice(lines, count) for id in (*line, self._vocabulary.eos_id)]
            known[part] = np.array(ids[:-1], np.int32).tobytes()
        return known


def tokenizers() -> Any:
    """Return the library `tokenizers`; InputError: it is not installed."""
    try:
        import tokenizers as library
    except ImportError as error:
        command = installation("subword")
        raise InputError(f"data.tokenizer=bpe and unigram need the package tokenizers: {command}") from error
    return library
