"""n-gram models as a `Model`: from an ARPA file, or from the folder of an n-gram run."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from spanlm.config import read_config, read_yaml, save_config
from spanlm.data.config import SPLITS, DataConfig, Split
from spanlm.data.corpora import Corpus
from spanlm.data.sources import findable
from spanlm.data.vocabulary import EOS, UNK, Vocabulary
from spanlm.errors import InputError
from spanlm.options import Precision, read_group
from spanlm.runs.model import Model
from spanlm.runs.texts import Texts
from spanlm.scoring.combination import em_weights, log_p_of_each
from spanlm.scoring.ngram.arpa import NO_UNKNOWN, open_arpa, read_arpa, write_arpa
from spanlm.scoring.ngram.config import NgramConfig, NgramRunConfig
from spanlm.scoring.ngram.kenlm import Kenlm, installed
from spanlm.scoring.ngram.kneser_ney import KneserNey
from spanlm.scoring.ngram.model import END, START, ArpaModel
from spanlm.scoring.ngram.next_word import NgramModel, UnigramCache
from spanlm.scoring.perplexity import Evaluation
from spanlm.scoring.prefix_tree import Prefixes
from spanlm.store import VERSION
from spanlm.store.files import is_arpa, run_name, written
from spanlm.store.provenance import PROVENANCE, record_start
from spanlm.store.run_folder import CONFIG, METRICS, MODEL, MetricsLog, locked, refuse_family, vocabulary_file
from spanlm.training.card import Card, write_card

_LOG = logging.getLogger(__name__)

ARPA = "model.arpa"
"""File name of the model in the folder of an n-gram run."""

_TEXTLESS = "an ARPA file does not say which text it is of"


class NgramTexts(Texts):
    """The texts of an n-gram model, which reads each line by itself, however the stream is cut.

    Attributes:
        arpa: the model of an ARPA file, which may lack <unk>; None: the model is a run's.
    """

    arpa: ArpaModel | None = None

    def reading(self) -> dict[str, str]:
        """Return how words and lines are cut; an ARPA file does not say, and documents make no difference."""
        fields = super().reading()
        return {} if self.textless else {name: fields[name] for name in ("data.tokenizer", "data.lines")}

    def unk_notes(self) -> list[str]:
        """Return a note if an ARPA file lacks <unk>; a run's model always has it."""
        if self.arpa is None or self.arpa.tables[0].log10[0] > NO_UNKNOWN:
            return []
        return [
            f"{self.folder.name} does not list {UNK}: each unknown word counts with a probability of 10^{NO_UNKNOWN:g}"
        ]


class NgramRun(Model):
    """An n-gram model as a `Model`; `spanlm.load` returns it."""

    model: NgramModel
    kind = "an n-gram model"
    any_words = True

    @property
    def description(self) -> str:
        cache = self.model.cache
        held = "" if cache is None else f" + cache of the last {cache.window:,} words, λ {cache.share:.3g}"
        return f"{self.model.arpa.order}-gram model, {self.size:,} n-grams{held}"

    @property
    def size(self) -> int:
        """The number of n-grams of all orders."""
        return sum(int((~np.isnan(table.log10)).sum()) for table in self.model.arpa.tables)

    def title(self) -> str:
        return f"{run_name(self.folder)}, {self.description}"

    def in_words_of(self, other: Model) -> NgramRun:
        """Return the same model with the vocabulary and the texts of another."""
        if other.texts is self.texts:
            return self
        lost = sum(word not in other.vocabulary for word in self.vocabulary.words)
        if lost and other.folder != self.folder:
            why = f"not in the vocabulary of {other.folder}: their probability is lost, which raises its perplexity"
            _LOG.info("note: %s: %s of its words are %s", self.folder, f"{lost:,}", why)
        opened, cache = other.texts.predict_first, self.model.cache
        model = NgramModel(self.model.arpa, other.vocabulary, cache, opened=opened).to(other.model.device)
        run = NgramRun(model.eval(), other.texts)
        run.folder, run._kenlm = self.folder, None
        return run

    def _log_probs_of(self, texts: list[list[int]], precision: Precision) -> tuple[list[list[float]], Prefixes]:
        """Score with KenLM if it is installed and there is no cache, else as any model."""
        if self.model.cache is not None or self.texts.tokenizer.exact or self._kenlm is None:
            return super()._log_probs_of(texts, precision)
        first = 0 if self.texts.predict_first else 1
        spelled = [END if word == EOS else word for word in self.vocabulary.words]
        log_p = [self._kenlm.log_probs(map(spelled.__getitem__, text))[first:] for text in texts]
        return log_p, Prefixes(read := sum(map(len, texts)) + len(texts), read)

    @cached_property
    def _kenlm(self) -> Kenlm | None:
        """KenLM with the same file; None: KenLM is not installed, or refuses a file that our reader may accept."""
        with suppress(InputError):
            return Kenlm(self.folder if is_arpa(self.folder) else self.folder / ARPA)
        return None


def load_arpa(path: Path) -> NgramRun:
    """Load an ARPA file with its own vocabulary; white space separates words.

    Raises:
        InputError: the file breaks a rule of `spanlm.scoring.ngram.arpa`, or lists <eos>.
    """
    arpa = _open(path)
    vocabulary = vocabulary_of(arpa, path)
    texts = NgramTexts(vocabulary, DataConfig(corpus=str(path)), path, textless=_TEXTLESS)
    texts.arpa = arpa
    return NgramRun(NgramModel(arpa, vocabulary).eval(), texts)


def _open(path: Path) -> ArpaModel:
    """Read an ARPA file; if KenLM is installed and can score texts, the tables are read only on demand."""
    return open_arpa(path) if installed() else read_arpa(path)


def vocabulary_of(arpa: ArpaModel, path: Path) -> Vocabulary:
    """Return an n-gram model's vocabulary: `<eos>` for `</s>`, and no words that a text cannot contain."""
    if EOS in arpa.ids:
        raise InputError(f"{path}: lists the word {EOS}, which here is the end of a line, {END} in an ARPA file")
    words = (word for word in arpa.words if word != START and "\f" not in word and "\v" not in word)
    return Vocabulary(tuple(EOS if word == END else word for word in words))


def is_ngram_run(folder: Path) -> bool:
    """Whether a folder's configuration is that of an n-gram run."""
    return "ngram" in read_yaml(folder / CONFIG)


def load_ngram_run(folder: Path) -> NgramRun:
    """Load the folder of an n-gram run.

    Raises:
        InputError: files that are missing, damaged, or do not belong together.
    """
    config = load_config(folder / CONFIG)
    vocabulary = Vocabulary.load(vocabulary_file(folder, config.data.of_pieces))
    arpa = _open(folder / ARPA)
    if {*vocabulary.words} != {*vocabulary_of(arpa, folder / ARPA).words}:
        raise InputError(f"{folder / ARPA}: has other words than {vocabulary_file(folder)}. Put its own back.")
    if arpa.order != config.ngram.order:
        raise InputError(f"{folder / ARPA}: is of order {arpa.order}, and {CONFIG} says {config.ngram.order}")
    model = NgramModel(arpa, vocabulary, cache_of(config.ngram))
    return NgramRun(model.eval(), NgramTexts(vocabulary, config.data, folder))


def cache_of(config: NgramConfig) -> UnigramCache | None:
    """Return the cache of a configuration; None: it has no cache, or no share yet."""
    if config.cache is None or config.cache_share is None:
        return None
    return UnigramCache(window=config.cache, share=config.cache_share)


def load_config(path: Path) -> NgramRunConfig:
    """Read the configuration of an n-gram run; InputError: the file is no such configuration, with its name."""
    tree = read_config(path)
    try:
        return read_group(NgramRunConfig, tree)
    except InputError as error:
        raise error.within(path) from None


def train_ngram(
    config: NgramRunConfig, corpus: Corpus, folder: Path, report: Callable[[str], None] = lambda _: None
) -> tuple[NgramRun, Mapping[Split, Evaluation]]:
    """Estimate a model on the training part of a corpus, and write a run folder; `config.yaml` comes last.

    Memory holds the model and a constant number of blocks of the text. If the cache has no share, the one that fits the
    validation part best is taken. `report` is called with the name of each step.

    Returns:
        The run, and its evaluations on the validation and the test part.

    Raises:
        InputError: the folder is in use or holds a run, or the text is too short, see `KneserNey.estimate`.
        RunError: the disk has no room for the temporary files or the folder.
    """
    new = not folder.exists()
    with locked(folder, forget=new):
        begun = (folder / PROVENANCE).exists()  # by a process that was killed before it wrote the configuration
        if present := [name for name in (CONFIG, MODEL, *[ARPA] * (not begun)) if (folder / name).exists()]:
            raise InputError(f"{folder}: already holds a run ({', '.join(present)}). Choose another folder.")
        refuse_family(folder)
        report(f"counting {len(corpus.splits['train']):,} tokens")
        options = config.ngram
        pieces = (np.asarray(block, np.int64) for block in corpus.splits["train"].blocks())
        arpa = KneserNey(options.order, options.fallback).estimate(pieces, corpus.vocabulary)
        config = replace(config, data=findable(config.data), ngram=_with_share(options, arpa, corpus))
        model = NgramModel(arpa, corpus.vocabulary, cache_of(config.ngram)).eval()
        run = NgramRun(model, NgramTexts(corpus.vocabulary, config.data, folder))
        report("measuring the perplexity")
        results = {split: run.evaluate(corpus, split) for split in SPLITS[1:]}
        report(f"writing {folder / ARPA}")
        _write(run, config, corpus, results)
    return run, results


def _write(run: NgramRun, config: NgramRunConfig, corpus: Corpus, results: Mapping[Split, Evaluation]) -> None:
    """Write the folder of a run; `config.yaml` comes last."""
    folder = run.folder
    facts: dict[str, Any] = {"unk": corpus.unk_tokens("train"), "texts": corpus.texts}
    record_start(folder, run.model.device, precision="fp32", ranks=1, **facts)
    corpus.vocabulary.save(vocabulary_file(folder, bool(corpus.vocabulary.pieces)))
    write_arpa(run.model.arpa, folder / ARPA)
    (folder / METRICS).unlink(missing_ok=True)
    log = MetricsLog(folder / METRICS)
    for split, result in results.items():
        values = {"loss": result.nll_per_token, "perplexity": result.perplexity}
        speed = {"tokens_per_second": round(result.tokens_per_second, 1)}
        log.write({"event": split, **values, **speed, "time": datetime.now(UTC).isoformat()})
    log.close()
    card = Card(
        name=run_name(folder),
        tags=["n-gram"],
        parts={"model": (config.description, "")},
        size=f"{run.size:,} n-grams",
        vocabulary_size=len(corpus.vocabulary),
        data=config.data,
        texts=corpus.texts,
        measured=[(split, result.perplexity, result.protocol) for split, result in results.items()],
        training=f"counted by spanlm {VERSION}",
    )
    if note := write_card(folder, card):
        _LOG.info("note: %s", note)
    with written(folder, "Make room, or choose another folder.", "cannot be written"):
        save_config(folder / CONFIG, config.to_yaml())


def _with_share(options: NgramConfig, arpa: ArpaModel, corpus: Corpus) -> NgramConfig:
    """Set the share of a cache that has none, by EM on the validation part, read as one stream."""
    if options.cache is None or options.cache_share is not None:
        return options
    model = NgramModel(arpa, corpus.vocabulary, UnigramCache(window=options.cache, share=0.5)).eval()
    both = log_p_of_each(model, model.head.each, corpus, "valid")
    # with 0 or 1 one of the two would be ignored
    return replace(options, cache_share=min(max(em_weights(both).weights[1], 1e-6), 1 - 1e-6))
