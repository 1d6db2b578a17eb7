"""What words are cut into, from trained runs: `python -m results.vocabularies RUNS` writes vocabularies.jsonl.

RUNS has the trainings of `spanlm sweep results/vocabularies/TEXT.yaml`, in RUNS/vocabularies/TEXT. All are compared on
the test text, word by written word, with the LSTM on words, and memories with the LSTM on the same tokens; unknown
words are spelled.
"""

import argparse
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import torch

from results.record import asked, save
from results.records import Record
from spanlm.analysis.compare import TokenBits, compare, read_tokens, shared_text
from spanlm.config import RunConfig
from spanlm.data.config import Split
from spanlm.runs.loading import load
from spanlm.scoring.options import State
from spanlm.store.provenance import starts
from spanlm.store.run_folder import CONFIG, MODEL

TEXTS = "ptb", "wikitext-2"
PART: Split = "test"
STATE: State = "carry"
KINDS = "whitespace", "bpe", "unigram", "characters", "bytes"


def _named(run: Path) -> Record:
    config = RunConfig.load(run / CONFIG)
    data, memory = config.data, config.model.memory
    return {
        "tokenizer": data.tokenizer,
        "pieces": data.vocabulary_size or 0,
        "window": getattr(memory, "window", 0),  # of a key-value-predict memory; 0: the LSTM alone
        "units": config.model.encoder.output_size,
        "training": {
            "seed": config.training.seed,
            "epochs": config.training.epochs,
            "commit": starts(run)[0].get("commit"),
        },
    }


def _order(about: Record) -> tuple[int, int, int]:
    """From words to bytes, from large pieces to small ones, from the LSTM to long windows."""
    return KINDS.index(about["tokenizer"]), -about["pieces"], about["window"]


def _read(run: Path) -> tuple[Record, TokenBits]:
    """Return what `spanlm evaluate` says of a run, and its bits at each written word."""
    torch.set_num_threads(1)
    told = asked("evaluate", run, "--spell-unknown", "--split", PART, "--state", STATE, "--threads", 1)
    kept = {"bits_per_byte": told["shares"]["bytes"]["bits"], "tokens_per_word": told["tokens_per_word"]}
    model = load(run, "cpu")
    bits = read_tokens(model, model.corpus(None, PART), PART, STATE, written=True)
    return {**kept, "spelled": told["spelling"]["words"]}, bits


def _rows(folder: Path) -> dict[str, Record]:
    """Return a row for each trained run, the LSTM on words first."""
    runs = {path.parent: _named(path.parent) for path in folder.glob(f"*/{MODEL}")}
    runs = dict(sorted(runs.items(), key=lambda run: _order(run[1])))
    with ProcessPoolExecutor() as pool:
        read = dict(zip(runs, pool.map(_read, runs), strict=True))
    words, *_ = runs
    text = shared_text(model := load(words, "cpu"), model.corpus(None, PART), PART, STATE, written=True)
    lstms = {_order(about)[:2]: run for run, about in runs.items() if not about["window"]}
    rows = {}
    for run, about in runs.items():
        row = rows[run.name] = {**about, **read[run][0]}
        for name, base in {"against_words": words, "against_lstm": lstms[_order(about)[:2]]}.items():
            if run != base:
                one = compare(text, read[base][1], read[run][1])
                row[name] = {"bits": one.whole.difference, "interval": one.whole.interval, "p": one.p}
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
