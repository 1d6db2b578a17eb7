"""`spanlm train ngram [TEXT]`: counts an n-gram model."""

from __future__ import annotations

import argparse
import shlex
from dataclasses import replace

from spanlm.cli.options import free_folder, text_and_preset
from spanlm.cli.render import out, paragraph, table
from spanlm.config import nested, overlaid, refuse_unknown
from spanlm.data.corpora import load_corpus
from spanlm.data.sources import with_own_documents, with_own_tokenizer
from spanlm.options import leaves, read_group
from spanlm.papers.registry import NGRAM_PRESETS
from spanlm.runs.ngram import ARPA, train_ngram
from spanlm.scoring.ngram.config import NgramRunConfig
from spanlm.scoring.tally import shown


def run(options: argparse.Namespace) -> None:
    preset, corpus_name = text_and_preset(options.names, options.corpus, NGRAM_PRESETS)
    if corpus_name is not None:
        options.fields["data.corpus"] = corpus_name
    base = NGRAM_PRESETS[preset or "ngram"].config
    refuse_unknown(options.fields, [name for name, _, _ in leaves(base)])
    config = read_group(NgramRunConfig, overlaid(base.to_tree(), nested(options.fields)))
    # new runs of `spanlm train` use "straight-words", too
    data = with_own_tokenizer(config.data, options.fields)
    config = replace(config, data=replace(data, tokenizer="straight-words") if data.tokenizer == "words" else data)
    if options.print_config:
        out(config.to_yaml())
        return
    config = replace(config, data=with_own_documents(config.data))
    corpus = load_corpus(config.data, as_text=options.as_text)
    folder = options.out or free_folder(preset, config.data.corpus)
    paragraph(*corpus.notes)
    table([("model", config.description), ("data", corpus.description), ("folder", str(folder))])
    trained, results = train_ngram(config, corpus, folder, out)
    rows = [(f"{name} ppl", shown(result.perplexity)) for name, result in results.items()]
    table([("model", trained.description), *rows])
    out(f"{folder / ARPA} is written. Try it: spanlm evaluate {shlex.quote(str(folder))}")
