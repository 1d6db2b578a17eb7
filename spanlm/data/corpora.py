"""From the name of a corpus to its vocabulary and its tokens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain

import numpy as np

from spanlm.data.config import DEMO, SPLITS, DataConfig, Lines, Split, Tokenizer
from spanlm.data.demo import Topic, demo_note, demo_topics
from spanlm.data.sources import Source, find_source
from spanlm.data.text import Text, fingerprint
from spanlm.data.token_files import TokenFile, count_words, token_file
from spanlm.data.tokenizer import into_sentences
from spanlm.data.vocabulary import EOS, UNK, Vocabulary
from spanlm.errors import InputError
from spanlm.store.files import expanded

# words that occur once in the demo stand for the words it does not have
DEMO_MIN_COUNT = 2


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """A corpus, ready for batching.

    Attributes:
        name: What the user called it; the last part of a path.
        vocabulary: Gives words to the ids.
        splits: The tokens of train, valid and test.
        notes: What was decided for the user, one line each.
        oov: Tokens of each split that are `<unk>` because the vocabulary does not have the word; an `<unk>`
            written in the text is not among them.
        tokenizer: How the text was cut into words; new text must be cut by the same rule.
        lines: Where lines end, as in `DataConfig`; a count by sentences is of other tokens than one by lines.
        texts: The SHA-256 of each split's text, where it came from a file.
    """

    name: str
    vocabulary: Vocabulary
    splits: dict[str, TokenFile]
    notes: list[str]
    oov: dict[str, int]
    tokenizer: Tokenizer
    lines: Lines = "as-written"
    texts: dict[str, str] = field(default_factory=dict)

    def unk_tokens(self, split: str) -> int:
        """Return how many tokens of a split are `<unk>`."""
        return int(np.count_nonzero(self.splits[split].ids == self.vocabulary.unk_id))


WHOLE = "text"


def load_corpus(
    config: DataConfig, vocabulary: Vocabulary | None = None, splits: Sequence[Split] = SPLITS, as_text: bool = False
) -> Corpus:
    """Load a corpus: find its texts, build its vocabulary from the training part, and give every word an id.

    The first load of a text reads it three times (hash, counts, ids) in bounded memory and keeps the result
    in the cache folder; a later one reads it once, for the hash that says it is still the same text. Memory
    grows with the number of different words, not with the length of the text.

    Args:
        config: The corpus and its treatment.
        vocabulary: Encode with this one, and build none.
        splits: The splits to load; without `vocabulary` the training part is read in any case.
        as_text: Read files as text that are known to be in another format (`spanlm.data.formats`).

    Raises:
        InputError: The corpus is not there, is not what was published, or breaks a rule of
            `spanlm.data.text`; the message names the file.
        RunError: A download failed, or the cache folder cannot be written.
    """
    if config.corpus == DEMO:
        return _load_demo(config, vocabulary, splits)
    needed = [split for split in SPLITS if split in splits or (split == "train" and vocabulary is None)]
    source = find_source(config, needed, as_text)
    prints = {split: _verified_fingerprint(source, split) for split in needed}
    # cut another way, a text has other counts
    published = source.published if config.tokenizer == "whitespace" else None
    if vocabulary is None:
        counts = count_words(source.texts["train"], prints["train"], config.tokenizer, config.effective_documents)
        _check_count(source, "train", "types", len(counts), published.types if published else None)
        vocabulary = _vocabulary_of(counts, config, source)
    tokens, oov = {}, {}
    for split in splits:
        tokens[str(split)], oov[str(split)] = found, _ = token_file(
            source.texts[split], prints[split], vocabulary, config.tokenizer, config.effective_documents
        )
        _check_count(source, split, "tokens", len(found), published.files[split].tokens if published else None)
    tokens, notes = _in_lines(config, tokens, vocabulary)
    return Corpus(
        name=source.name,
        vocabulary=vocabulary,
        splits=tokens,
        notes=[*source.notes, *notes],
        oov=oov,
        tokenizer=config.tokenizer,
        lines=config.lines,
        texts={str(split): prints[split] for split in splits},
    )


def load_text(config: DataConfig, vocabulary: Vocabulary, as_text: bool = False) -> Corpus:
    """Load one text file whole, as the only split `WHOLE`: what a trained model is evaluated on.

    Raises:
        InputError: The file breaks a rule of `spanlm.data.text`; the message names it.
        RunError: The cache folder cannot be written.
    """
    path = expanded(config.corpus)
    text = Text(path, as_text=as_text)
    tokens, oov = token_file(text, fingerprint(text), vocabulary, config.tokenizer, config.effective_documents)
    splits, notes = _in_lines(config, {WHOLE: tokens}, vocabulary)
    return Corpus(
        name=path.name,
        vocabulary=vocabulary,
        splits=splits,
        notes=notes,
        oov={WHOLE: oov},
        tokenizer=config.tokenizer,
        lines=config.lines,
    )


def _in_lines(
    config: DataConfig, tokens: dict[str, TokenFile], vocabulary: Vocabulary
) -> tuple[dict[str, TokenFile], list[str]]:
    """Return the tokens in the lines that are asked for, and a note if these are not those of the text."""
    if config.lines == "as-written":
        return tokens, []
    split = {
        name: TokenFile(*into_sentences(np.asarray(part.ids), part.documents, vocabulary))
        for name, part in tokens.items()
    }
    counts = ", ".join(f"{name} {len(tokens[name]):,} → {len(part):,} tokens" for name, part in split.items())
    return split, [f"lines cut into sentences, blank ones left out: {counts}"]


def _verified_fingerprint(source: Source, split: Split) -> str:
    text = source.texts[split]
    found = fingerprint(text)
    expected = source.published.files[split].sha256 if source.published is not None else None
    if expected is not None and found != expected:
        raise InputError(
            f"{text.path}: not the published {source.name} {split} text (SHA-256 {found}, "
            f"published {expected}); fetch it again, or give its folder as --data.corpus to use it as it is"
        )
    return found


def _vocabulary_of(counts: dict[str, int], config: DataConfig, source: Source) -> Vocabulary:
    min_count = config.min_count or (1 if source.published or UNK in counts else 2)
    if min_count != (config.min_count or 1):
        source.notes.append("words that occur once in the training part are <unk> (--data.min_count 1 keeps them)")
    return Vocabulary.from_counts(counts, min_count, config.max_size)


def _check_count(source: Source, split: Split, what: str, found: int, expected: int | None) -> None:
    if expected is not None and found != expected:
        raise InputError(
            f"{source.texts[split].path}: {found} {what}, but the published {source.name} text has {expected}; "
            "fetch it again, or report this if its SHA-256 is right"
        )


def _load_demo(config: DataConfig, vocabulary: Vocabulary | None, splits: Sequence[Split]) -> Corpus:
    topics = demo_topics()
    notes = [demo_note(topics)]
    if vocabulary is None:
        min_count = max(config.min_count or 1, DEMO_MIN_COUNT)
        vocabulary = Vocabulary.from_counts(Counter(_demo_words(topics["train"])), min_count, config.max_size)
        notes.append(f"demo: words that occur fewer than {min_count} times in the training part are <unk>")
    tokens = {str(split): _demo_tokens(topics[split], vocabulary) for split in splits}
    oov = {str(split): sum(word not in vocabulary for word in _demo_words(topics[split])) for split in splits}
    return Corpus(
        name=DEMO, vocabulary=vocabulary, splits=tokens, notes=notes, oov=oov, tokenizer=config.effective_tokenizer
    )


def _demo_words(topics: Sequence[Topic]) -> chain[str]:
    return chain.from_iterable((*sentence, EOS) for topic in topics for sentence in topic.sentences)


def _demo_tokens(topics: Sequence[Topic], vocabulary: Vocabulary) -> TokenFile:
    lengths = [sum(len(sentence) + 1 for sentence in topic.sentences) for topic in topics]
    ids = np.array(vocabulary.encode(_demo_words(topics)), dtype=np.int32)
    return TokenFile(ids, np.concatenate([[0], np.cumsum(lengths[:-1], dtype=np.int64)]))
