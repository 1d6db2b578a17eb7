"""The end of the main job: what a newcomer wants to see of the model that was just trained."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from spanlm.analysis.export import save_attention
from spanlm.cli.report import TrainingReport, out, table
from spanlm.config import RunConfig
from spanlm.data.corpora import Corpus
from spanlm.data.vocabulary import EOS
from spanlm.models.counting import count_configured, match_parameters
from spanlm.models.memories import NoMemoryConfig
from spanlm.trained import TrainedModel, load
from spanlm.training.run import train

WORDS_SHOWN = 120


def tour(config: RunConfig, corpus: Corpus, folder: Path) -> None:
    """Test perplexity beside a same-budget LSTM's, three generated lines, the attention page."""
    model = load(folder)
    table([(name, f"test ppl {value:.2f}") for name, value in _compare(model, config, corpus, folder)])
    out("\nthree lines it wrote:")
    for seed in (1, 2, 3):
        out(f"  {_one_line(model, seed)}")
    page = folder / "attention.html"
    save_attention(model.attend(_excerpt(corpus)), page)
    out(f"\nwhere it looked, word by word: open {page} in a browser")
    out(f'next: spanlm score {folder} FILE · spanlm generate {folder} --prompt "the" · spanlm presets')


def _compare(model: TrainedModel, config: RunConfig, corpus: Corpus, folder: Path) -> list[tuple[str, float]]:
    """Train an LSTM of the same θ_M beside the run (or find it there), and test both."""
    count = count_configured(config.model, len(corpus.vocabulary)).model
    plain = match_parameters(replace(config.model, memory=NoMemoryConfig()), len(corpus.vocabulary), count)
    baseline = folder / "lstm"
    out(f"\nfor comparison, an LSTM with as many parameters ({plain.encoder.hidden_size} units):")
    with TrainingReport() as report:
        train(replace(config, model=plain), corpus, baseline, report, resume=True)
    return [
        ("this model", model.evaluate(corpus).perplexity),
        ("LSTM of the same size", load(baseline).evaluate(corpus).perplexity),
    ]


def _one_line(model: TrainedModel, seed: int) -> str:
    words = model.generate(length=30, temperature=0.7, seed=seed)
    return " ".join(words[: words.index(EOS)] if EOS in words else [*words, "…"])


def _excerpt(corpus: Corpus) -> str:
    words = [corpus.vocabulary.word(i) for i in corpus.splits["test"].ids[:WORDS_SHOWN].tolist()]
    return " ".join(words).replace(f" {EOS} ", "\n").removesuffix(f" {EOS}")
