"""The texts of a trained model: how it cuts words, loads corpora, and sets a word's context."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, InitVar, dataclass, field, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import cast, get_args

from spanlm.data.config import CONVENTIONS, CORPORA, DEMO, SPLITS, BatchingKind, DataConfig, Part, Split, WordRule
from spanlm.data.corpora import WHOLE, Corpus, as_read, count_training_words, load_corpus, load_text
from spanlm.data.pieces import WORDS, Piece, in_lines, lines_as_pieces, refuse_table, text_as_pieces, words_of
from spanlm.data.sources import of_its_own_documents, split_by_lines, text_path
from spanlm.data.subwords import make_tokenizer
from spanlm.data.synthetic import PREFIX
from spanlm.data.text import Text, fingerprint, without_marks
from spanlm.data.tokenizer import Tokenizer, as_in_corpus, refuse_reserved, written_spans
from spanlm.data.vocabulary import EOS, UNK, Vocabulary
from spanlm.errors import InputError, Note, RunError, named, require
from spanlm.models.memories import AnyMemoryConfig
from spanlm.options import Precision
from spanlm.runs.requests import InStreams, OnText, OpenVocabulary
from spanlm.scoring.options import ClozeContext, Context, State
from spanlm.scoring.predictors import Frequencies
from spanlm.scoring.protocol import KINDS, Protocol
from spanlm.scoring.spelling import Speller, Spelling
from spanlm.scoring.words import WordScore, WrittenScore, folded_scores, written_scores
from spanlm.store.files import expanded
from spanlm.store.provenance import last_fact
from spanlm.training.config import BatchingConfig
from spanlm.training.setup import batching_kind

STREAMS = BatchingConfig(kind="streams")
_LOG = logging.getLogger(__name__)
_CONTEXTS: dict[BatchingKind, Context] = {kind: context for context, kind in KINDS.items()}

_CHANGED = "not the text that it was when this model was trained, which may have read some of it"


class _Changed(Note):
    """The note that a text has changed since training."""


@dataclass(frozen=True)
class LoadCorpus:
    """Which corpus to load.

    Attributes:
        name: a registered corpus, a folder, or a text file (taken whole, unless the model was trained on its parts); by
            default the training corpus.
        split: load only this part.
        data_dir: the folder of the corpora.
        download: fetch a registered corpus that is missing.
        as_text: read a file as text even if its format is another one; the training text always is.
    """

    name: str | Path | None = None
    split: Split | None = None
    data_dir: str | Path | None = field(default=None, kw_only=True)
    download: bool = field(default=False, kw_only=True)
    as_text: bool = field(default=False, kw_only=True)


@dataclass(eq=False, repr=False)
class Texts:
    """Texts for a model, cut as its training text was.

    For an ensemble, `data`, `batching` and `folder` are the first member's, and `memories` are those of all members.
    `textless` is the error for a model that does not know its training text, when no corpus is named.
    """

    vocabulary: Vocabulary
    data: DataConfig
    folder: Path
    _: KW_ONLY
    batching: BatchingConfig = STREAMS
    memories: InitVar[Sequence[AnyMemoryConfig]] = ()
    textless: str = ""

    def __post_init__(self, memories: Sequence[AnyMemoryConfig]) -> None:
        name = Path(self.data.corpus).name
        self.convention = name if self.data.tokenizer == "whitespace" and name in CONVENTIONS else None
        """Texts are rewritten in this corpus's way to write words; None: they are read as written."""
        self._is_noted = False
        self._speller: Speller | None = None
        self._remembers_everything = any(memory.slots is None for memory in memories)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        return make_tokenizer(self.data.effective_tokenizer, self.vocabulary)

    @property
    def predict_first(self) -> bool:
        """Whether <eos> opened each line in training, so that the line's first word was predicted."""
        return self.batching.predict_first

    @property
    def line_by_line(self) -> bool:
        """Whether the training read each line alone."""
        return self.batching.kind == "sentences"

    def pieces(self, text: str | Text | Path | Iterable[str]) -> Iterator[Piece]:
        """Cut a string, a file or lines into words, and into lines or sentences, as the training text was.

        Raises:
            InputError: the file breaks a rule of `spanlm.data.text`.
        """
        text = Text(expanded(text)) if isinstance(text, Path) else text
        require(isinstance(text, Text | Iterable), "text", text, "a string, a path or several strings")
        refuse_table("text", text)
        if isinstance(text, str):
            text = text.removesuffix("\n").split("\n")
        if isinstance(text, Text):
            pieces = text_as_pieces(as_read(text, self.data, self.vocabulary), self.tokenizer)
        else:
            pieces = lines_as_pieces(self.unmarked(text), self.tokenizer)
        pieces = pieces if self.convention is None else self._as_in_corpus(pieces, self.convention)
        return in_lines(pieces, self.data.lines, self.vocabulary)

    def unmarked(self, lines: Iterable[str]) -> Iterator[str]:
        """Replace the marks at the ends of lines by white space, unless `data.marks` or the tokenizer keeps them."""
        if self.tokenizer.exact:
            return iter(lines)
        keeps_marks = self.data.keeps_marks(self.vocabulary)
        return (without_marks(line, keeps_marks) for line in lines)

    def unmarked_text(self, text: str) -> str:
        return "\n".join(self.unmarked(text.split("\n")))

    def words_in(self, cells: Sequence[str]) -> Iterator[int]:
        """Yield how many written words of a line each of its cells has; marks that are not read are none."""
        read, start = self.unmarked_text(" ".join(cells)), 0
        for cell in cells:
            yield len(written_spans(read[start : start + len(cell)]))
            start += len(cell) + 1

    def _as_in_corpus(self, pieces: Iterable[Piece], convention: str) -> Iterator[Piece]:
        start = 1
        for piece in pieces:
            cut = as_in_corpus(piece.words, convention, self.vocabulary)
            words = [token for tokens in cut for token in tokens]
            if words != piece.words and not self._is_noted:
                self._is_noted = True
                word, tokens = next(pair for pair in zip(piece.words, cut, strict=True) if [pair[0]] != pair[1])
                example = f"as {convention} writes them, such as {word!r} as {' '.join(tokens)!r}"
                _LOG.info("note: words are read %s; --as-written reads them as they are", example)
            yield replace(piece, start=start, words=words)
            start = 1 if piece.closes else start + len(words)

    def cut(self, line: str) -> list[list[str]]:
        """Return the tokens of each written word of one line; InputError: it holds the reserved word `<eos>`."""
        if self.convention is None:
            return self.tokenizer.by_word(line)[:-1]
        words = refuse_reserved(line)
        parts = (words[start : start + WORDS] for start in range(0, len(words), WORDS))  # as `pieces` has them
        return [tokens for part in parts for tokens in as_in_corpus(part, self.convention, self.vocabulary)]

    def written(self, line: str, scores: Sequence[WordScore], *, eos: bool = False) -> list[WrittenScore]:
        """Combine the scores of a line's tokens, with the <eos> at its end, into scores of its written words."""
        sizes = [len(tokens) for tokens in self.cut(line)]
        if self.tokenizer.exact:
            return folded_scores(line, scores, sizes, eos=eos)
        return written_scores(line, scores, sizes, eos=eos)

    def tokens(self, line: str) -> list[str]:
        """Return the tokens of one line; InputError: see `cut`."""
        return self.tokenizer.tokens(line) if self.convention is None else list(chain.from_iterable(self.cut(line)))

    def prompt(self, text: str) -> list[str]:
        """Return the words of a text to continue, with its line ends; the last line or sentence stays open."""
        require(isinstance(text, str), "prompt", text, "a string")
        refuse_reserved(text)  # even at the end, where the line is open
        *before, last = self.pieces(text.split("\n"))
        return [*words_of(before), *last.words]

    def corpus(self, request: LoadCorpus, reader: Texts | None = None) -> Corpus:
        """Load a corpus, or a part of it, cut and encoded as for this model, or as for the model of another `reader`.

        Raises:
            InputError: there is no such corpus, it breaks a rule of `spanlm.data.text`, or no corpus is named and the
                model does not know its training text.
        """
        split, as_text = request.split, request.as_text
        data_dir = None if request.data_dir is None else str(request.data_dir)
        name = None if request.name is None else str(request.name)
        if self.textless and name is None:
            raise InputError(f"{self.folder}: {self.textless}; name one by {named('corpus=…')}")
        require(split is None or split in SPLITS, "split", split, "train, valid or test")
        data, other = self.data, name is not None and not self._is_of_training(name, data_dir)
        if name is not None and not other:
            data = replace(data, corpus=name)
        elif name is not None:
            tokenizer, documents = data.effective_tokenizer, data.effective_documents
            resets = documents != "none" or data.corpus == DEMO
            data = DataConfig(corpus=name, dir=data_dir, tokenizer=tokenizer, documents=documents, lines=data.lines)
            data = replace(data, marks=self.data.marks)
            data = of_its_own_documents(data) if resets else data
        if reader is not None:
            cut = reader.data
            same = ("lines", "marks", "vocabulary_size", "pieces", "min_count", "max_size")
            # the demo is cut in one way, whatever the rule
            rule = cut.tokenizer if data.corpus == cut.corpus == DEMO else cut.effective_tokenizer
            data = replace(data, tokenizer=rule, **{name: getattr(cut, name) for name in same})
        vocabulary = self.vocabulary if reader is None else reader.vocabulary
        if data_dir is not None:
            data = replace(data, dir=data_dir)
        if other and name not in CORPORA and (path := text_path(data)).is_file():
            return self._with_unk_notes(load_text(replace(data, corpus=str(path)), vocabulary, as_text))
        splits, as_text = SPLITS if split is None else (split,), as_text or not other
        loaded = load_corpus(replace(data, download=request.download), vocabulary, splits, as_text=as_text)
        return self._with_unk_notes(loaded if other else self._with_changed_note(loaded))

    def speller(self, beside: Corpus | None = None) -> Speller:
        """Count how the words of the training text are spelled; `beside` is that of `training_counts`.

        Raises:
            InputError: the training text is not known, or not there.
        """
        if self.textless:
            way = f"Leave {named('spell_unknown')} out"
            raise InputError(f"{self.folder}: {self.textless}, whose words say how unknown ones are spelled. {way}")
        if self._speller is None:
            self._speller = Speller(self.training_counts(beside))
        return self._speller

    def training_counts(self, beside: Corpus | None = None, rule: WordRule | None = None) -> Mapping[str, int]:
        """Count the words of the training text, also those outside the vocabulary; by default as the model cuts them.

        The text is where it was, or in the folder that the corpus `beside` was looked for in.

        Raises:
            InputError: the training text is not known, or not there.
        """
        if self.textless:
            raise InputError(f"{self.folder}: {self.textless}")
        problem: InputError | None = None
        for folder in dict.fromkeys((self.data.dir, beside.config.dir if beside and beside.config else self.data.dir)):
            data = replace(self.data, dir=folder, download=False)
            try:
                counts, digest = count_training_words(
                    data, self.vocabulary, rule or cast(WordRule, data.effective_tokenizer)
                )
            except InputError as error:
                problem = problem or error
                continue
            if self._recorded_texts.get("train", digest) != digest:
                _LOG.info("note: %s train: %s", data.corpus, _CHANGED)
            return counts
        assert problem is not None
        raise problem.within(f"{self.folder}: the training text")

    @property
    def _recorded_texts(self) -> dict[str, str]:
        """The SHA-256 of each part at the run's last start; empty: they are not known."""
        return last_fact(self.folder, "texts", dict[str, str]())

    def frequencies(self) -> Frequencies:
        """Return the frequencies of the training text's written words; InputError: it is not known, or not there."""
        return Frequencies(self.training_counts(rule="whitespace"), f"the training text of {self.folder}")

    def note_changes(self, corpus: Corpus) -> None:
        """Log the note that a text has changed since training, for a corpus that is not reported on."""
        for line in corpus.notes:
            if isinstance(line, _Changed):
                _LOG.info("note: %s", line)

    def unk_notes(self) -> list[str]:
        """Return a note if the training text had no <unk>: the model learnt nothing about unknown words."""
        with suppress(RunError):  # if the file is damaged, give no note
            if last_fact(self.folder, "unk", 1) == 0:
                return [f"no {UNK} was read in training, so the probabilities of unknown words mean nothing"]
        return []

    def _with_unk_notes(self, corpus: Corpus) -> Corpus:
        scored = any(map(corpus.unk_tokens, corpus.splits))
        return replace(corpus, notes=[*corpus.notes, *self.unk_notes()]) if scored else corpus

    def _with_changed_note(self, corpus: Corpus) -> Corpus:
        """Add a note if the training corpus has changed since training."""
        before = self._recorded_texts
        changed = [part for part, text in corpus.texts.items() if before.get(part, text) != text]
        note = _Changed(f"{corpus.name} {' and '.join(changed)}: {_CHANGED}")
        return replace(corpus, notes=[*corpus.notes, note]) if changed else corpus

    def _is_of_training(self, name: str, data_dir: str | None) -> bool:
        """Whether a name or path means the training corpus, from any working directory."""
        known = self.data.corpus
        if name == known or any(corpus in (DEMO, *CORPORA) or corpus.startswith(PREFIX) for corpus in (name, known)):
            return name == known
        first, second = (text_path(DataConfig(corpus=path, dir=data_dir or self.data.dir)) for path in (name, known))
        if first.exists() and second.exists() and first.samefile(second):
            return True
        # in another working directory the training's relative path is void, so compare the contents
        return first.is_file() and not second.is_dir() and self._has_texts_of_training(first)

    def _has_texts_of_training(self, path: Path) -> bool:
        known = self._recorded_texts
        if known.keys() != set(SPLITS):
            return False
        try:
            parts, _ = split_by_lines(path, as_text=True)
        except InputError:
            return False  # reading it raises the same error
        # the short parts first: they are enough to tell another text
        return all(fingerprint(parts[split]) == known[split] for split in reversed(SPLITS))

    def part(self, corpus: Corpus | str | Path | None, split: Part) -> tuple[Corpus, Part]:
        """Return a corpus in this model's vocabulary and the part to read; a file is taken whole.

        Raises:
            InputError: there is no such corpus or part, or the corpus has another vocabulary or is cut in another way.
        """
        whole = None if split == WHOLE else split
        loaded = corpus if isinstance(corpus, Corpus) else self.corpus(LoadCorpus(corpus, whole))
        if loaded.vocabulary.hash != self.vocabulary.hash:
            raise InputError(
                f"{loaded.name}: is encoded with another vocabulary than the model's. Load it with model.corpus(...)."
            )
        cut = {"data.tokenizer": loaded.tokenizer, "data.lines": loaded.lines}
        if loaded.config is not None and loaded.config.corpus == DEMO:
            del cut["data.tokenizer"]  # the demo corpus is cut in one way for all models
        for name, value in self.reading().items():
            if cut.get(name, value) != value:
                raise InputError(
                    f"{loaded.name}: is cut with {name}={cut[name]}, and the model's text was with {value}. Load it "
                    "with model.corpus(...)."
                )
        return loaded, WHOLE if WHOLE in loaded.splits else split

    def protocol(
        self,
        corpus: Corpus,
        split: str,
        state: State = "auto",
        *,
        batch_size: int | None = None,
        precision: Precision = "fp32",
    ) -> Protocol:
        """Return how a part of a corpus is counted if a word's context is `state`; auto: as in training.

        Raises:
            InputError: the state or the part is unknown, there are fewer tokens than streams, the state is document and
                the part is one document, or the model never had such a context, see `refuse_context`.
        """
        require(state in get_args(State), "state", state, "auto, carry, document or line")
        if split not in corpus.splits:
            raise InputError("split", split, f"{corpus.name} has {', '.join(corpus.splits)}")
        tokens = corpus.splits[split]
        if state == "auto":
            # one document with resets at documents is one stream
            trained = self.batching.kind
            context = _CONTEXTS[batching_kind("auto" if trained == "documents" else trained, tokens)]
        else:
            context = state
            self.refuse_context(context, f"all of {corpus.name} {split}")
            if context == "document" and len(tokens.documents) == 1:
                instead = "line" if self._remembers_everything else "carry, which is the same here"
                starts = (corpus.config or self.data).effective_documents
                why = f"{corpus.name} {split} is one document, so there is nothing to reset at"
                way = f"Take {instead}; data.documents says what starts a document ({starts})."
                raise InputError("state", state, why, way)
        most = f"at most {len(tokens)}, the tokens of {corpus.name} {split}"
        require(context != "carry" or (batch_size or 1) <= len(tokens), "batch_size", batch_size, most)
        return Protocol(context=context, batch_size=batch_size, precision=precision, predict_first=self.predict_first)

    def counted(self, request: OnText) -> tuple[Corpus, str, Protocol]:
        """Return a corpus, the part to read, and its protocol; see `part` and `protocol` for errors."""
        loaded, part = self.part(request.corpus, request.split)
        batch_size = request.batch_size if isinstance(request, InStreams) else None
        protocol = self.protocol(loaded, part, request.state, batch_size=batch_size, precision=request.precision)
        if isinstance(request, OpenVocabulary) and request.spell_unknown:
            protocol = replace(protocol, spelling=Spelling.of(loaded, part, lambda: self.speller(loaded)))
        return loaded, part, protocol

    def refuse_context(self, state: Context, text: str = "all of the text") -> None:
        """Refuse a context that the model never had in training.

        Raises:
            InputError: the state is carry and the memory would hold the whole `text`, or lines follow each other though
                the model does not predict first words (training.batching.predict_first=false).
        """
        if state == "carry" and self._remembers_everything:
            why = "the model remembers everything since the last reset (as with model.memory.window=null)"
            raise InputError("state", "carry", f"{why}, and carry would make that {text}", "Take line or document.")
        if state != "line" and not self.predict_first:
            why = "the model was trained on sentences that know nothing of each other and that no <eos> opens"
            reason = f"{why} (training.batching.predict_first=false), so it has never read what stands between two"
            raise InputError("state", state, reason, "Take line.")

    def cloze_contexts(self, contexts: Iterable[ClozeContext] | None) -> tuple[ClozeContext, ...]:
        """Return the contexts to read before the query of a cloze question; None: the longest that the model can use.

        Raises:
            InputError: no contexts, or full for a model that was trained on single lines.
        """
        if contexts is None:
            return ("query",) if self.line_by_line else ("full",)
        contexts = tuple(contexts)
        require(bool(contexts), "contexts", "()", "some of full, query")
        if self.line_by_line and "full" in contexts:
            why = "the model was trained on independent lines, so it cannot use the sentences before the query"
            raise InputError("context", "full", why, "Take context query.")
        return contexts

    def reading(self) -> dict[str, str]:
        """Return the settings for reading texts; the members of an ensemble must agree on them."""
        data, kind = self.data, self.batching.kind
        if kind == "auto":
            # the demo always has documents, its topics
            kind = "documents" if data.corpus == DEMO or data.effective_documents != "none" else "streams"
        return {
            "data.tokenizer": data.effective_tokenizer,
            "data.lines": data.lines,
            "data.documents": data.effective_documents,
            "training.batching.kind": kind,
            "training.batching.predict_first": str(self.batching.predict_first).lower(),
        }

    def to_attend(self, text: str | Path | Iterable[str], state: Context) -> tuple[list[str], list[int]]:
        """Return a text's words, <eos> included, and the positions where contexts begin; see `text_to_attend`."""
        self.refuse_context(state)
        return text_to_attend(self.pieces(text), state)


def text_to_attend(pieces: Iterable[Piece], state: Context) -> tuple[list[str], list[int]]:
    """Return the words of a text with an <eos> per line or sentence, and the positions where contexts begin.

    Blank lines at the end are dropped; if each line is its own context, blank lines at the beginning, too.

    Raises:
        InputError: the text has no words.
    """
    require(state in get_args(Context), "state", state, "carry, line or document")
    words: list[str] = []
    starts, last, blank, begun = [0], 0, False, False
    for piece in pieces:
        if state == "line" and not last:
            words = []
        resets = blank and begun and not piece.blank
        if (state == "line" and piece.opens) or (state == "document" and resets):
            starts += [len(words)] * (len(words) > starts[-1])
        words += words_of([piece])
        last, blank, begun = len(words) if piece.words else last, piece.blank, begun or not piece.blank
    if not last:
        raise InputError("the text to attend to has no words")
    end = last + (words[last - 1] != EOS)
    return words[:end], [start for start in starts if start < end]
