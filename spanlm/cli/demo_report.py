"""The demo report (`--tour`): shows newcomers what the model they have just trained can do."""

from __future__ import annotations

import shlex
from dataclasses import replace
from itertools import groupby
from pathlib import Path

from spanlm.analysis.export import save_attention
from spanlm.cli.render import out, table
from spanlm.cli.training_report import TrainingReport
from spanlm.config import RunConfig
from spanlm.data.corpora import Corpus
from spanlm.data.vocabulary import EOS
from spanlm.models.counting import count_configured, match_parameters
from spanlm.models.encoders import LSTMConfig
from spanlm.models.memories import KeyValueConfig, NoMemoryConfig, RecurrentMemoryConfig
from spanlm.runs.loading import load
from spanlm.runs.trained_model import TrainedModel, require_weights
from spanlm.store.files import own
from spanlm.training.run import train

WORDS_SHOWN = 120


def print_demo_report(config: RunConfig, corpus: Corpus, folder: Path) -> None:
    """Print test perplexity beside that of an LSTM of the same size, and three lines; write the attention page."""
    model = require_weights(load(folder), "the demo")
    results = [("this model", model.evaluate(corpus).perplexity)]
    is_lstm = isinstance(config.model.encoder, LSTMConfig) and isinstance(config.model.memory, NoMemoryConfig)
    if config.model.head.tied or is_lstm:
        out("\nno comparison: only an untied model with a memory is compared with an LSTM of the same size")
    else:
        results.append(("LSTM of the same size", _baseline(config, corpus, own(folder / "lstm"))))
    table([(name, f"test ppl {value:.2f}") for name, value in results])
    out("\nthree lines it wrote:")
    for seed in (1, 2, 3):
        out(f"  {_one_line(model, seed)}")
    if isinstance(config.model.memory, KeyValueConfig | RecurrentMemoryConfig):
        page = own(folder / "attention.html")
        save_attention(model.attend(_excerpt(corpus), state="line" if model.texts.line_by_line else "carry"), page)
        out(f"\nwhere it looked, word by word: open {page} in a browser")
    run = shlex.quote(str(folder))
    out(f'next: spanlm score {run} FILE · spanlm generate {run} --prompt "the" · spanlm presets')


def _baseline(config: RunConfig, corpus: Corpus, folder: Path) -> float:
    """Train an LSTM of the same θ_M (or go on with it), and return its test perplexity."""
    count = count_configured(config.model, len(corpus.vocabulary)).model
    like = replace(config.model, encoder=LSTMConfig(), memory=NoMemoryConfig())
    plain = match_parameters(like, len(corpus.vocabulary), count)
    out(f"\nfor comparison, an LSTM with as many parameters ({plain.encoder.output_size} units):")
    with TrainingReport(notes=False) as report:
        train(replace(config, model=plain), corpus, folder, report, resume=True)
    return load(folder).evaluate(corpus).perplexity


def _one_line(model: TrainedModel, seed: int) -> str:
    words = model.generate(length=30, temperature=0.7, seed=seed)
    while words[:1] == [EOS]:
        words = words[1:]
    return " ".join(words[: words.index(EOS)] if EOS in words else [*words, "…"])


def _excerpt(corpus: Corpus) -> str:
    """Return the first lines with words of the test part, about WORDS_SHOWN words."""
    words = [corpus.vocabulary.word(i) for i in corpus.splits["test"].ids[: 4 * WORDS_SHOWN].tolist()]
    lines, held = [], 0
    for is_end, line in groupby(words, lambda word: word == EOS):
        if not is_end and held < WORDS_SHOWN:
            lines.append(list(line)[:WORDS_SHOWN])
            held += len(lines[-1])
    return "\n".join(map(" ".join, lines))
