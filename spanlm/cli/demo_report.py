"""The demo report (`--tour`): shows newcomers what the model they have just trained can do."""

from __future__ import annotations

import math
import shlex
from contextlib import suppress
from dataclasses import replace
from itertools import dropwhile, groupby, takewhile
from pathlib import Path

from spanlm.analysis.classes import by_novelty
from spanlm.analysis.compare import SharedText, TokenBits, differences, read_tokens, shared_text
from spanlm.analysis.export import save_attention
from spanlm.cli.render import out, paragraph, table
from spanlm.cli.training_report import TrainingReport
from spanlm.config import RunConfig
from spanlm.data.corpora import Corpus
from spanlm.data.tokenizer import Tokenizer
from spanlm.data.vocabulary import EOS
from spanlm.errors import InputError
from spanlm.models.counting import count_configured, match_parameters
from spanlm.models.encoders import LSTMConfig
from spanlm.models.memories import KeyValueConfig, NoMemoryConfig, RecurrentMemoryConfig
from spanlm.runs.loading import load
from spanlm.runs.model import TrainedModel, require_weights
from spanlm.scoring.options import Context
from spanlm.store.files import own
from spanlm.training.run import train

WORDS_SHOWN = 120
WINDOW, THETAS = 500, (0.1, 0.2, 0.3, 0.4, 0.6, 0.8)
"""Words in the cache, and values of θ to try."""
MOST_TUNED = 20_000
"""Tokens of a split: tuning a cache on more takes too long for a demo."""


def print_demo_report(config: RunConfig, corpus: Corpus, folder: Path) -> None:
    """Print test perplexities, what memory and cache are worth, and three lines; write the attention page."""
    model = require_weights(load(folder), "the demo")
    text, plain = shared_text(model, corpus, "test"), read_tokens(model, corpus, "test")
    results = [("this model", plain.perplexity)]
    emptied = []
    if config.model.memory.slots != 0:  # a memory without slots has no attention to remove
        emptied.append(read_tokens(model.with_attention("none"), corpus, "test"))
    cached = _cached(model, corpus)
    results += [(f"  with {bits.name}", bits.perplexity) for bits in cached]
    is_lstm = isinstance(config.model.encoder, LSTMConfig) and isinstance(config.model.memory, NoMemoryConfig)
    compared = not (config.model.head.tied or is_lstm)
    if not compared:
        out("\nno comparison: only an untied model with a memory is compared with an LSTM of the same size")
    else:
        results.append(("LSTM of the same size", _baseline(config, corpus, own(folder / "lstm"))))
    table([(name, f"test ppl {value:.2f}") for name, value in results])
    for other in emptied:
        # removing the memory overstates its worth: the model has learnt to rely on it
        trained = "; one that was trained without may need fewer"
        _print_worth(text, other, plain, "without its memory this model needs {} bits a token more", trained)
    for other in cached:
        _print_worth(text, plain, other, f"{other.name} saves {{}} bits a token")
    if model.texts.predict_first:
        out("\nthree lines it wrote:")
        for seed in (1, 2, 3):
            out(f"  {_one_line(model, seed)}")
    if isinstance(config.model.memory, KeyValueConfig | RecurrentMemoryConfig):
        page = own(folder / "attention.html")
        state: Context = "line" if model.texts.line_by_line else "carry"
        save_attention(model.attend(_excerpt(corpus, model.texts.tokenizer), state=state), page)
        out(f"\nwhere it looked, word by word: open {page} in a browser")
    run = shlex.quote(str(folder))
    out(f'next: spanlm score {run} FILE · spanlm generate {run} --prompt "the" · spanlm presets')
    if compared:
        out(f"where the two differ: spanlm compare {shlex.quote(str(folder / 'lstm'))} {run}")


def _cached(model: TrainedModel, corpus: Corpus) -> list[TokenBits]:
    """Read test with a cache tuned on valid; empty if one of the splits is too long."""
    sizes = [len(corpus.splits[split]) for split in ("valid", "test")]
    if max(sizes) > MOST_TUNED:
        return []
    cache = model.tune_cache([min(WINDOW, *sizes)], corpus, "valid", thetas=THETAS).best
    return [read_tokens(model, corpus, "test", name=f"a cache of the last {cache.window} words", cache=cache)]


def _print_worth(text: SharedText, before: TokenBits, after: TokenBits, claim: str, more: str = "") -> None:
    """Print by how many bits `after` is better than `before`, and at which words."""
    with suppress(InputError):  # the text is too short for an interval
        novelty = by_novelty(text.ids, text.vocabulary, text.openings)
        (whole,) = differences(text, text.everything, before, after)
        words = differences(text, novelty, before, after)
        if math.isnan(whole.interval[0]):
            return
        low, high = (_bits(-bound) for bound in whole.interval[::-1])
        where = ", ".join(f"{_bits(-row.difference)} at {row.name}" for row in words)
        claim = f"{claim.format(_bits(-whole.difference))} (95 %: {low} to {high})"
        paragraph((f"{claim}: {where}, <eos> and <unk> apart" if where else claim) + more)


def _bits(value: float) -> str:
    return f"{value:z.2f}".replace("-", "−")


def _baseline(config: RunConfig, corpus: Corpus, folder: Path) -> float:
    """Train or resume an LSTM of the same θ_M; return its test perplexity."""
    count = count_configured(config.model, len(corpus.vocabulary)).model
    like = replace(config.model, encoder=LSTMConfig(), memory=NoMemoryConfig())
    plain = match_parameters(like, len(corpus.vocabulary), count)
    out(f"\nfor comparison, an LSTM with as many parameters ({plain.encoder.output_size} units):")
    anew = replace(config.training, start_from=None, learns="all")
    with TrainingReport(notes=False) as report:
        train(replace(config, model=plain, training=anew), corpus, folder, report, resume=True)
    return load(folder).evaluate(corpus).perplexity


def _one_line(model: TrainedModel, seed: int) -> str:
    words = [*dropwhile(EOS.__eq__, model.generate(length=30, temperature=0.7, seed=seed))]
    line = "".join(model.texts.tokenizer.readable(takewhile(EOS.__ne__, words)))
    return line if EOS in words else f"{line} …"


def _excerpt(corpus: Corpus, tokenizer: Tokenizer) -> str:
    """Return the first non-empty lines of test, about WORDS_SHOWN words."""
    words = [corpus.vocabulary.word(i) for i in corpus.splits["test"].ids[: 4 * WORDS_SHOWN].tolist()]
    lines, held = [], 0
    for is_end, line in groupby(words, lambda word: word == EOS):
        if not is_end and held < WORDS_SHOWN:
            lines.append(list(line)[:WORDS_SHOWN])
            held += len(lines[-1])
    return "\n".join("".join(tokenizer.readable(line)) for line in lines)
