"""A trained model with its words, its configuration and its folder: what every call on one begins with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from spanlm.config import RunConfig
from spanlm.context import State, cut_of, refuse_other_context
from spanlm.data.config import DEMO, SPLITS, BatchingKind, DataConfig, Split
from spanlm.data.corpora import WHOLE, Corpus, load_corpus, load_text
from spanlm.data.registry import CORPORA
from spanlm.data.sources import split_by_lines
from spanlm.data.text import Text, fingerprint
from spanlm.data.tokenizer import tokenize
from spanlm.data.vocabulary import UNK, Vocabulary
from spanlm.errors import InputError, RunError, require
from spanlm.evaluation.dynamic_statistics import DYNAMIC
from spanlm.evaluation.text_pieces import in_lines, lines_as_pieces, text_as_pieces, words_of
from spanlm.evaluation.words import Piece, StateMode
from spanlm.files import expanded, run_name
from spanlm.models.interfaces import NextWordModel
from spanlm.training.provenance import changed_texts, read_texts, starts


class TrainedRun:
    """A trained model, and the texts it can read.

    Attributes:
        model: the language model, in evaluation mode.
        vocabulary: its words.
        config: the run's configuration.
        folder: where it came from.
        statistics_file: the name in the folder of what dynamic evaluation has to know of the model.
    """

    statistics_file = DYNAMIC

    def __init__(self, model: NextWordModel, vocabulary: Vocabulary, config: RunConfig, folder: Path) -> None:
        """Keep the four together."""
        self.model, self.vocabulary, self.config, self.folder = model, vocabulary, config, folder

    @property
    def opened(self) -> bool:
        """Whether <eos> opens each line of its training, so that the line's first word was predicted."""
        return self.config.training.batching.predict_first

    def title(self, source: str = "") -> str:
        """Name the run, its memory and where a text comes from."""
        return f"{run_name(self.folder)}, {self.config.model.memory.description}{source}"

    def tokenize(self, text: str) -> list[str]:
        """Split text into words as the training text was."""
        return tokenize(text, self.config.data.effective_tokenizer)

    def pieces(self, text: Text | Iterable[str]) -> Iterator[Piece]:
        """Cut a file, or lines, into words, and into lines or sentences, as the training text was.

        Raises:
            InputError: the file breaks a rule of `spanlm.data.text`.
        """
        data, tokenizer = self.config.data, self.config.data.effective_tokenizer
        found = text_as_pieces(text, tokenizer) if isinstance(text, Text) else lines_as_pieces(text, tokenizer)
        return in_lines(found, data.lines, self.vocabulary)

    def prompt(self, text: str) -> list[str]:
        """Return the words of a text that is to go on: line ends among them, the last line or sentence open."""
        *before, last = self.pieces(text.split("\n"))
        return [*words_of(before), *last.words]

    def corpus(
        self,
        name: str | None = None,
        split: Split | None = None,
        *,
        data_dir: str | None = None,
        download: bool = False,
        as_text: bool = False,
    ) -> Corpus:
        """Load a corpus in this model's vocabulary.

        Args:
            name: a registered corpus, a folder, or a text file (taken whole, unless it is the one of the training,
                which has parts); by default the corpus of the training.
            split: load only this part; by default all.
            data_dir: where registered corpora are.
            download: fetch a registered corpus that is not there.
            as_text: read a file as text that is known to be in another format; the training's own always is.

        Raises:
            InputError: there is no such corpus, or it breaks a rule of `spanlm.data.text`.
        """
        require(split is None or split in SPLITS, "split", split, "train, valid or test")
        data, other = self.config.data, name is not None and not self._is_of_training(name)
        if name is not None and not other:
            data = replace(data, corpus=name)
        elif name is not None:
            tokenizer, documents = data.effective_tokenizer, data.effective_documents
            data = DataConfig(corpus=name, tokenizer=tokenizer, documents=documents, lines=data.lines)
            if name not in CORPORA and expanded(name).is_file():
                return self._with_unk_notes(load_text(data, self.vocabulary, as_text))
        if data_dir is not None:
            data = replace(data, dir=data_dir)
        splits, as_text = SPLITS if split is None else (split,), as_text or not other
        found = load_corpus(replace(data, download=download), self.vocabulary, splits, as_text=as_text)
        return self._with_unk_notes(found if other else self._as_in_training(found))

    def unk_notes(self) -> list[str]:
        """Say it if the training text had no <unk>: nothing was learnt of the words that the vocabulary lacks."""
        words, data = self.vocabulary, self.config.data
        learnt: list[bool] = []
        with suppress(RunError):  # what a damaged file does not say is not known
            learnt = [bool(start["unk"]) for start in starts(self.folder) if start.get("unk") is not None]
        # spanlm 0.1.0 did not record it; where no word was left out, <unk> comes last if the text has none
        whole = data.min_count == 1 and data.corpus != DEMO and len(words) < (data.max_size or len(words) + 1)
        known = learnt[-1] if learnt else not (whole and words.unk_id == len(words) - 1)
        return [] if known else [f"no {UNK} was read in training, so the probabilities of unknown words mean nothing"]

    def _with_unk_notes(self, corpus: Corpus) -> Corpus:
        scored = any(map(corpus.unk_tokens, corpus.splits))
        return replace(corpus, notes=[*corpus.notes, *self.unk_notes()]) if scored else corpus

    def _as_in_training(self, corpus: Corpus) -> Corpus:
        """Note it if the corpus of the training is not what it was."""
        changed = changed_texts(self.folder, corpus.texts)
        note = (
            f"{corpus.name} {' and '.join(changed)}: not the text that it was when this model was trained, which may "
            "have read some of it"
        )
        return replace(corpus, notes=[*corpus.notes, note]) if changed else corpus

    def _is_of_training(self, name: str) -> bool:
        """Whether a name is that of the training's corpus, however the path is written and wherever from."""
        known = self.config.data.corpus
        if name == known or known in (DEMO, *CORPORA) or name in (DEMO, *CORPORA):
            return name == known
        one, two = (expanded(path) for path in (name, known))
        if one.exists() and two.exists() and one.samefile(two):
            return True
        # a relative path of the training means something else in another folder: what the file has in it does not
        return one.is_file() and not two.is_dir() and self._has_texts_of_training(one)

    def _has_texts_of_training(self, path: Path) -> bool:
        known = read_texts(self.folder)
        if known.keys() != set(SPLITS):
            return False
        try:
            parts, _ = split_by_lines(path, as_text=True)
        except InputError:
            return False  # what is wrong with it is said by what reads it
        # the short parts first: another text is known by them
        return all(fingerprint(parts[split]) == known[split] for split in reversed(SPLITS))

    def part(self, corpus: Corpus | str | None, split: Split) -> tuple[Corpus, str]:
        """Return a corpus in this model's vocabulary, and which part of it is meant; a file is taken whole.

        Raises:
            InputError: no such corpus or part, or one in another vocabulary.
        """
        loaded = corpus if isinstance(corpus, Corpus) else self.corpus(corpus, split)
        if loaded.vocabulary.hash != self.vocabulary.hash:
            raise InputError(
                f"{loaded.name}: is encoded with another vocabulary than the model's. Load it with model.corpus(...)."
            )
        return loaded, WHOLE if WHOLE in loaded.splits else split

    def batching(self, corpus: Corpus, split: str, state: State = "auto") -> BatchingKind:
        """Return how a part of a corpus is cut for a word's context to be `state`; auto: as in training.

        Raises:
            InputError: the corpus has no such part, documents are asked for and the part is one document, or nothing
                is ever to be forgotten by a memory that holds everything since the last reset.
        """
        return cut_of(self.config, corpus, split, state)

    def refuse_context(self, state: StateMode) -> None:
        """Refuse a context of words that the model was never given.

        Raises:
            InputError: see `spanlm.context.refuse_other_context`.
        """
        refuse_other_context(self.config, state)
