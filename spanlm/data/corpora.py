"""Corpora: texts with their vocabulary and the ids of their tokens."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple, cast, get_args

import numpy as np

from spanlm.data.config import (
    CORPORA,
    DEMO,
    SPLITS,
    USUAL_PIECES,
    DataConfig,
    Lines,
    Split,
    TokenizerName,
    TrainedPieces,
    WordRule,
    is_exact,
)
from spanlm.data.pieces_file import MOST_LEARNED, PIECES_FORMAT, learned, read_pieces
from spanlm.data.sources import Source, find_source, verified_fingerprint, with_own_tokenizer
from spanlm.data.subwords import Bytes, Characters, make_tokenizer
from spanlm.data.synthetic import PREFIX
from spanlm.data.text import Text, fingerprint, lines_of, marks_note
from spanlm.data.token_files import (
    DIGEST_BYTES,
    TokenFile,
    cached,
    caching,
    count_words,
    counted,
    is_whole,
    text_pieces,
    token_file,
)
from spanlm.data.tokenizer import into_sentences
from spanlm.data.vocabulary import EOS, UNK, Vocabulary
from spanlm.errors import InputError, require
from spanlm.store.files import expanded

# the only split of a text that `load_text` loads
WHOLE: Final = "text"
_SPACE = b" \t\n\r\v\f"
_CONTINUATION = bytes(range(0x80, 0xC0))  # of characters of several bytes in UTF-8


def shown_name(name: str, tokenizer: TokenizerName, lines: Lines) -> str:
    """Name a corpus for a report; the name of a retokenised published corpus says so."""
    if name not in CORPORA:
        return name
    rule = tokenizer if is_exact(tokenizer) else "retokenised"
    changed = [rule] * (tokenizer != (CORPORA[name].tokenizer or "whitespace"))
    return ", ".join([name, *changed, *["cut into sentences"] * (lines == "sentences")])


class Written(NamedTuple):
    """What a text has as it is written: what its NLL is divided by.

    White space separates words. Characters are the code points of the words, and bytes those of their UTF-8; both with
    one more for the white space after each word, however long, and one for each blank line that is an `<eos>`.
    """

    words: int
    characters: int
    bytes: int


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """A corpus, ready for batching.

    Attributes:
        notes: Decisions made for the user, one line each.
        oov: Tokens of each split that are `<unk>` because the vocabulary lacks the word, without a written `<unk>`.
        tokenizer: What cut the text into tokens; new text must follow it.
        lines: Where lines end, as in `DataConfig`.
        texts: The SHA-256 of each split's text, if it came from a file.
        config: The configuration that loaded the corpus.
        sources: Readers of each split's original text, in the pieces of `spanlm.data.text`.

    Example:
        >>> corpus = spanlm.load_corpus("demo")
        >>> unknown = {split: corpus.oov[split] / len(file.ids) for split, file in corpus.splits.items()}
        >>> unknown["test"] > unknown["train"]
        True
    """

    name: str
    vocabulary: Vocabulary
    splits: dict[str, TokenFile]
    notes: list[str]
    oov: dict[str, int]
    tokenizer: TokenizerName
    lines: Lines = "as-written"
    texts: dict[str, str] = field(default_factory=dict)
    config: DataConfig | None = field(default=None, compare=False, repr=False)
    sources: dict[str, Callable[[], Iterable[bytes]]] = field(default_factory=dict, compare=False, repr=False)

    @property
    def exact(self) -> bool:
        """Whether the tokens keep every byte, so that no text is unknown."""
        return is_exact(self.tokenizer)

    @property
    def description(self) -> str:
        """Name and sizes for a report."""
        sizes = ", ".join(f"{name} {len(tokens):,}" for name, tokens in self.splits.items())
        name = shown_name(self.name, self.tokenizer, self.lines)
        return f"{name}: {sizes} tokens; vocabulary {len(self.vocabulary):,}"

    def unk_tokens(self, split: str) -> int:
        """Count the `<unk>` tokens of a split."""
        return sum(int(np.count_nonzero(ids == self.vocabulary.unk_id)) for ids in self.splits[split].blocks())

    def digest(self, *splits: str) -> str:
        """Hash the vocabulary, and the ids and document starts of some splits."""
        digest = hashlib.sha256(self.vocabulary.hash.encode())
        for split in splits:
            digest.update(np.ascontiguousarray(self.splits[split].ids).data)
            digest.update(self.splits[split].documents.tobytes())
        return digest.hexdigest()

    def written_lines(self, split: str) -> Iterator[str]:
        """Yield the original lines of a split, without line ends.

        Raises:
            InputError: the split has only ids.
        """
        yield from lines_of(self._source(split))

    def _source(self, split: str) -> Iterable[bytes]:
        if split not in self.sources:
            raise InputError(f"{self.name} {split}: has only ids; load a corpus that has a text")
        return self.sources[split]()

    def unknown_words(self, split: str) -> dict[str, int]:
        """Count the words of a split that the vocabulary lacks, without a written `<unk>`.

        Raises:
            InputError: the split has only ids.
        """
        if not self.oov[split]:
            return {}
        counts = counted(self._source(split), cast(WordRule, self.tokenizer))  # with pieces no word is unknown
        return {word: number for word, number in counts.items() if word not in self.vocabulary}

    def written(self, split: str) -> Written | None:
        """Count the words, characters and bytes of a split's original text; None: the split has only ids."""
        if split not in self.sources:
            return None
        words = letters = size = blank = 0
        last, line = b" ", b""  # of the piece before: its last byte, and the words of its last line
        for piece in filter(None, self.sources[split]()):
            # a very long word continues
            words += len(piece.split()) - (not last.isspace() and not piece[:1].isspace())
            solid = piece.translate(None, _SPACE)
            size += len(solid)
            letters += len(solid.translate(None, _CONTINUATION))
            *lines, rest = (line.strip() for line in (line + piece).split(b"\n"))
            blank += lines.count(b"")
            last, line = piece[-1:], rest[:1]
        between = words + (blank if self.exact else self._empty_lines(split))
        return Written(words, letters + between, size + between)

    def _empty_lines(self, split: str) -> int:
        """Count the lines that are an `<eos>` alone."""
        empty, ended = 0, True
        for ids in self.splits[split].blocks():
            ends = ids == self.vocabulary.eos_id
            empty += int(np.count_nonzero(ends[1:] & ends[:-1])) + bool(ended and ends[0])
            ended = ends[-1]
        return empty


def load_corpus(
    config: DataConfig | str | Path,
    vocabulary: Vocabulary | None = None,
    splits: Sequence[Split] = SPLITS,
    as_text: bool = False,
) -> Corpus:
    """Load a corpus: find its texts, build its vocabulary from the training part, and give every word an id.

    The first load of a text reads it three times (hash, counts, ids) and caches the result; a later load reads it
    once, to compare the hash. Memory grows with the number of different words, with the number of lines if they
    separate documents or splits, and with the text if it is cut into sentences. With a `vocabulary`, none is built;
    `as_text` reads even files of other known formats (`spanlm.data.formats`). A string or path stands for
    `DataConfig.corpus`.

    Raises:
        InputError: The corpus does not exist, differs from the published one, or breaks a rule of `spanlm.data.text`.
        RunError: A download failed, or the cache folder cannot be written.

    Example:
        >>> corpus = spanlm.load_corpus("demo")
        >>> list(corpus.splits), corpus.vocabulary.words[0] in corpus.vocabulary
        (['train', 'valid', 'test'], True)
    """
    if not isinstance(config, DataConfig):
        config = DataConfig(corpus=str(config))
        config = with_own_tokenizer(config) if vocabulary is None else config
    require(not isinstance(splits, str), "splits", splits, f"a list of some of {', '.join(SPLITS)}")
    splits = tuple(splits)
    for split in splits:
        require(split in SPLITS, "splits", split, f"some of {', '.join(SPLITS)}")
    require(isinstance(vocabulary, Vocabulary | None), "vocabulary", vocabulary, "a Vocabulary, or None")
    needed = [split for split in SPLITS if split in splits or (split == "train" and vocabulary is None)]
    source = find_source(config, needed, as_text)
    source = replace(source, texts={split: as_read(text, config, vocabulary) for split, text in source.texts.items()})
    digests = {str(split): verified_fingerprint(source, split) for split in needed}
    if vocabulary is None:
        vocabulary = _vocabulary_of(config, source, digests["train"])
    texts = {str(split): source.texts[split] for split in splits}
    digests = {split: digests[split] for split in texts}
    return replace(_encoded(source.name, config, texts, digests, vocabulary, source.notes), texts=digests)


def count_training_words(config: DataConfig, vocabulary: Vocabulary, rule: WordRule) -> tuple[dict[str, int], str]:
    """Count the words of a training part, also those outside the `vocabulary`; return the text's SHA-256, too.

    The counts are cached. Raises what `load_corpus` raises.
    """
    source = find_source(config, ["train"], as_text=True)
    text = as_read(source.texts["train"], config, vocabulary)
    digest = verified_fingerprint(source, "train")
    return count_words(text, digest, rule, config.effective_documents), digest


def load_text(config: DataConfig, vocabulary: Vocabulary, as_text: bool = False) -> Corpus:
    """Load one text file as the only split, `WHOLE`; raises what `load_corpus` raises."""
    text = as_read(Text(expanded(config.corpus), as_text=as_text), config, vocabulary)
    return _encoded(text.path.name, config, {WHOLE: text}, {WHOLE: fingerprint(text)}, vocabulary, [])


def _encoded(
    name: str,
    config: DataConfig,
    texts: Mapping[str, Text],
    digests: Mapping[str, str],
    vocabulary: Vocabulary,
    notes: Sequence[str],
) -> Corpus:
    tokenizer, documents = make_tokenizer(config.effective_tokenizer, vocabulary), config.effective_documents
    splits, oov, marked, notes = {}, {}, 0, [*notes]
    for split, text in texts.items():
        splits[split], oov[split], lines = token_file(text, digests[split], vocabulary, tokenizer, documents)
        marked += lines
    if marked:
        notes.append(marks_note(name, marked))
    if config.lines == "sentences":
        longer = {
            split: TokenFile(*into_sentences(np.asarray(x.ids), x.documents, vocabulary)) for split, x in splits.items()
        }
        counts = ", ".join(
            f"{split} {len(splits[split]):,} → {len(tokens):,} tokens" for split, tokens in longer.items()
        )
        notes.append(f"lines cut into sentences, blank ones left out: {counts}")
        splits = longer
    return Corpus(
        name=name,
        vocabulary=vocabulary,
        splits=splits,
        notes=notes,
        oov=oov,
        tokenizer=config.effective_tokenizer,
        lines=config.lines,
        config=config,
        sources={split: partial(text_pieces, text, digests[split], documents) for split, text in texts.items()},
    )


def as_read(text: Text, config: DataConfig, vocabulary: Vocabulary | None) -> Text:
    """Return a text that is read as `config` says, by a model with this vocabulary if there is one."""
    exact = is_exact(config.effective_tokenizer)
    marks, published = exact or config.keeps_marks(vocabulary or ()), CORPORA.get(config.corpus)
    padded = exact and published is not None and published.padded
    return replace(text, marks=marks, exact=exact, any_bytes=config.effective_tokenizer == "bytes", padded=padded)


def _vocabulary_of(config: DataConfig, source: Source, digest: str) -> Vocabulary:
    text, rule, documents = source.texts["train"], config.effective_tokenizer, config.effective_documents
    if rule == "bytes":
        return Bytes.vocabulary()
    if rule == "characters":
        return Characters.vocabulary(text_pieces(text, digest, documents), config.min_count or 1)
    if rule in get_args(TrainedPieces):
        if config.pieces is not None:
            return read_pieces(config.pieces, cast(TrainedPieces, rule))
        return _learned_pieces(config, source, digest)
    counts = count_words(text, digest, cast(WordRule, rule), documents)
    if config.marks is None:
        counts.pop("<s>", None)  # in a vocabulary it says that marks are kept: `DataConfig.keeps_marks`
    return _words_of(counts, config, source)


def _learned_pieces(config: DataConfig, source: Source, digest: str) -> Vocabulary:
    kind, size = cast(TrainedPieces, config.effective_tokenizer), config.vocabulary_size or USUAL_PIECES
    text, titles = source.texts["train"], config.effective_documents == "book-title"
    cut = partial(text_pieces, text, digest, config.effective_documents)
    path = cached("pieces", PIECES_FORMAT, digest, kind, size, titles, text.padded)
    if not is_whole(path):
        step = -(-sum(map(len, cut())) // MOST_LEARNED)
        vocabulary = learned(kind, lines_of(islice(cut(), 0, None, max(1, step))), size)
        with caching(path) as file:
            file.write(vocabulary.pieces.encode())
    vocabulary = Vocabulary.from_pieces(path.read_bytes()[:-DIGEST_BYTES].decode())
    if len(vocabulary) < size:
        source.notes.append(f"data.vocabulary_size: the training part gives {len(vocabulary):,} pieces, not {size:,}")
    return vocabulary


def _words_of(counts: dict[str, int], config: DataConfig, source: Source) -> Vocabulary:
    law_or_published = source.published or source.name.startswith(PREFIX)
    usual = 1 if law_or_published or UNK in counts else 2
    # in the demo rare words always become <unk>, so that its model learns unknown words
    min_count = max(config.min_count or 1, usual) if config.corpus == DEMO else config.min_count or usual
    if min_count != (config.min_count or 1):
        hint = "" if config.corpus == DEMO else " (data.min_count=1 keeps them)"
        source.notes.append(f"words that occur once in the training part are <unk>{hint}")
    vocabulary = Vocabulary.from_counts(counts, min_count, config.max_size)
    words, known = (
        sum(counts[word] for word in listed if word not in (EOS, UNK)) for listed in (counts, vocabulary.words)
    )
    if 2 * known < words:
        source.notes.append(f"only {known / words:.0%} of the words of the training part are in the vocabulary")
    return vocabulary
