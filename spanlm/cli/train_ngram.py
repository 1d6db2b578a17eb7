"""`spanlm train ngram [TEXT]`: an n-gram model, which is counted and not learnt."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

from spanlm.cli.options import Fields, Parser, free_folder, split_fields, text_and_preset
from spanlm.cli.render import out, paragraph, table
from spanlm.config import nested, overlaid, refuse_unknown
from spanlm.data.corpora import load_corpus, with_own_documents
from spanlm.options import leaves, read_group
from spanlm.papers import NGRAM_PRESETS
from spanlm.runs.ngram import ARPA, train_ngram
from spanlm.scoring.ngram.config import NgramRunConfig
from spanlm.scoring.tally import shown

_DESCRIPTION = """
Estimate an n-gram model: interpolated modified Kneser-Ney, as KenLM's lmplz does. evaluate,
score, cloze, pairs, rescore and generate take its folder as any run's; other tools read its model.arpa, too.

  spanlm train ngram --order 5 --corpus ptb --out runs/kn5
  spanlm train ngram my-text.txt --order 3
  spanlm train daniluk2017/kn-5-cache --corpus cbt

Every field of the configuration is an option, too (--ngram.fallback '[0.5, 1, 1.5]', --data.tokenizer words);
`--print_config` shows them all as YAML.
"""

SHORT = {
    "--order": ("ngram.order", "N", "the length of the longest n-grams, 1 to 6"),
    "--cache": ("ngram.cache", "C", "mix in a unigram cache of the last C words, its share fitted on the valid part"),
    "--data-dir": ("data.dir", "DIR", "where corpora are (default: $SPANLM_DATA)"),
}


def run(arguments: list[str]) -> None:
    mine, fields = split_fields(arguments, SHORT, ("data", "ngram"))
    options = _parser().parse_intermixed_args(mine)
    preset, corpus_name = text_and_preset(options.names, options.corpus, NGRAM_PRESETS)
    if corpus_name is not None:
        fields["data.corpus"] = corpus_name
    config = _config(NGRAM_PRESETS[preset or "ngram"].config, fields)
    if options.print_config:
        out(config.to_yaml())
        return
    config = replace(config, data=with_own_documents(config.data))
    corpus = load_corpus(config.data, as_text=options.as_text)
    folder = options.out or free_folder(preset, config.data.corpus)
    paragraph(*corpus.notes)
    table([("model", config.description), ("data", corpus.description), ("folder", str(folder))])
    trained, results = train_ngram(config, corpus, folder, out)
    table(
        [("model", trained.description), *((f"{name} ppl", shown(found.perplexity)) for name, found in results.items())]
    )
    out(f"{folder / ARPA} is written. Try it: spanlm evaluate {shlex.quote(str(folder))}")


def _parser() -> Parser:
    parser = Parser("train ngram", _DESCRIPTION, threads=False)
    parser.elsewhere = lambda: [f"--{name}" for name, _, _ in leaves(NgramRunConfig())]
    parser.add_argument("names", nargs="*", metavar="ngram|PRESET|TEXT", help="a preset; a file, folder or corpus")
    parser.add_argument("--corpus", metavar="NAME|PATH", help="short for --data.corpus")
    for option, (field, metavar, meaning) in SHORT.items():
        parser.add_argument(option, metavar=metavar, help=f"{meaning} ({field})")
    parser.add_argument("--out", type=Path, metavar="DIR", help="the run's folder (default: the next free in runs/)")
    parser.add_argument("--print_config", action="store_true", help="print the configuration as YAML and stop")
    parser.add_as_text()
    return parser


def _config(base: NgramRunConfig, fields: Fields) -> NgramRunConfig:
    refuse_unknown(fields, [name for name, _, _ in leaves(base)])
    config = read_group(NgramRunConfig, overlaid(base.to_tree(), nested(fields)))
    # as `spanlm train` does for new runs
    tokenizer = "straight-words" if config.data.tokenizer == "words" else config.data.tokenizer
    return replace(config, data=replace(config.data, tokenizer=tokenizer))
