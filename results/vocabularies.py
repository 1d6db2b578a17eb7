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


def _description(run: Path) -> Record:
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


def _cut(description: Record) -> tuple[int, int]:
    """Return what tells the tokens of a run: from words to bytes, from large pieces to small ones."""
    return KINDS.index(description["tokenizer"]), -description["pieces"]


def _read(run: Path) -> tuple[Record, TokenBits]:
    """Return what `spanlm evaluate` says of a run, and its bits at each written word."""
    torch.set_num_threads(1)
    evaluation = asked("evaluate", run, "--spell-unknown", "--split", PART, "--state", STATE, "--threads", 1)
    numbers = {
        "bits_per_byte": evaluation["shares"]["bytes"]["bits"],
        "tokens_per_word": evaluation["tokens_per_word"],
        "spelled": evaluation["spelling"]["words"],
    }
    model = load(run, "cpu")
    bits = read_tokens(model, model.corpus(None, PART), PART, STATE, written=True)
    return numbers, bits


def _rows(folder: Path) -> dict[str, Record]:
    """Return a row for each trained run, the LSTM on words first."""
    runs = {path.parent: _description(path.parent) for path in folder.glob(f"*/{MODEL}")}
    runs = dict(sorted(runs.items(), key=lambda run: (*_cut(run[1]), run[1]["window"])))
    with ProcessPoolExecutor() as pool:
        read = dict(zip(runs, pool.map(_read, runs), strict=True))
    on_words, *_ = runs
    model = load(on_words, "cpu")
    text = shared_text(model, model.corpus(None, PART), PART, STATE, written=True)
    lstms = {_cut(description): run for run, description in runs.items() if not description["window"]}
    rows = {}
    for run, description in runs.items():
        numbers, bits = read[run]
        row = rows[run.name] = {**description, **numbers}
        for name, base in {"against_words": on_words, "against_lstm": lstms[_cut(description)]}.items():
            if run != base:
                comparison = compare(text, read[base][1], bits)
                whole = comparison.whole
                row[name] = {"bits": whole.difference, "interval": whole.interval, "p": comparison.p}
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
