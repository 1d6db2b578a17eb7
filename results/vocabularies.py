"""What words are cut into, from trained runs: `python -m results.vocabularies RUNS` writes vocabularies.jsonl.

RUNS has the trainings of `spanlm sweep results/vocabularies/TEXT.yaml`, in RUNS/vocabularies/TEXT. All are compared on
the test text, word by written word, with the LSTM on words, and memories with the LSTM on the same tokens; unknown
words are spelled.
"""

import argparse
from pathlib import Path

from results.record import asked, save
from results.records import Record
from spanlm.config import RunConfig
from spanlm.store.run_folder import CONFIG, MODEL

TEXTS = "ptb", "wikitext-2"
READ = "--spell-unknown", "--split", "test", "--state", "carry", "--threads", 1
KINDS = "whitespace", "bpe", "unigram", "characters", "bytes"


def _named(run: Path) -> Record:
    config = RunConfig.load(run / CONFIG)
    data, memory = config.data, config.model.memory
    return {
        "tokenizer": data.tokenizer,
        "pieces": data.vocabulary_size or 0,
        "window": getattr(memory, "window", 0),  # of a key-value-predict memory; 0: the LSTM alone
        "units": config.model.encoder.output_size,
    }


def _order(about: Record) -> tuple[int, int, int]:
    """From words to bytes, from large pieces to small ones, from the LSTM to long windows."""
    return KINDS.index(about["tokenizer"]), -about["pieces"], about["window"]


def _rows(folder: Path) -> dict[str, Record]:
    """Return a row for each finished run, the LSTM on words first."""
    runs = {path.parent: _named(path.parent) for path in folder.glob(f"*/{MODEL}")}
    runs = dict(sorted(runs.items(), key=lambda run: _order(run[1])))
    rows = {}
    for run, about in runs.items():
        told = asked("evaluate", run, *READ)
        kept = {"bits_per_byte": told["shares"]["bytes"]["bits"], "tokens_per_word": told["tokens_per_word"]}
        rows[run.name] = {**about, **kept, "spelled": told["spelling"]["words"]}
    cuts = {_order(about)[:2] for about in runs.values()}
    alike = [[run for run, about in runs.items() if _order(about)[:2] == cut] for cut in sorted(cuts)]
    for name, compared in (("against_words", [[*runs]]), ("against_lstm", alike)):
        for family in compared:
            for run, one in zip(family[1:], asked("compare", *family, *READ)["comparisons"], strict=True):
                bits = {"bits": one["whole"]["difference"], "interval": one["whole"]["interval"], "p": one["p"]}
                rows[run.name][name] = bits
    return rows


def main() -> None:
    """Ask, and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path)
    runs = parser.parse_args().runs
    for folder in (runs / "vocabularies" / text for text in TEXTS):
        if folder.exists():
            what = "what words are cut into: bits a written word more than the LSTM's, test"
            save("vocabularies", folder.name, what, _rows(folder))


if __name__ == "__main__":
    main()
