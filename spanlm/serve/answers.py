"""Answers to requests: functions of a run and checked values; all that outlives a request is cached by its content."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, islice, pairwise
from typing import Any

import numpy as np
import torch

from spanlm.analysis.export import attention_table
from spanlm.analysis.pages import cached_content, page_content, plain_content, render_content
from spanlm.data.tokenizer import written_words
from spanlm.data.vocabulary import EOS, UNK
from spanlm.errors import InputError
from spanlm.options import kinds
from spanlm.runs.model import Model, require_weights
from spanlm.scoring.attention import attention_record
from spanlm.scoring.cache import cached_words
from spanlm.scoring.generation import Continuations, Drawn
from spanlm.scoring.options import BASES, Context, GenerationOptions
from spanlm.scoring.words import WordScore, WrittenScore, as_row, item_rows, written_scores
from spanlm.serve.fields import NEURAL_CACHE, Attend, Generate, GoOn, Next, Page, Read, Score, refuse_long
from spanlm.serve.served import Served
from spanlm.store.plain import finite

Row = dict[str, Any]

MOST_WEIGHTS = 5_000_000
"""Attention weights of a text to draw; a memory of the whole text has as many as the square of its words."""

_COUNTED: dict[Context, str] = {
    "carry": "state carried throughout",
    "document": "state reset at each document",
    "line": "state reset at each line",
}
MOST_ROWS = 500_000
"""Weights to list as rows; each row takes a kilobyte and ten microseconds."""

MOST_BITS = 1000
"""Bits beyond which no perplexity is shown: 2^bits is unreadable, and overflows soon after."""

SHOWN = 20
"""Candidates sent with each generated word."""

_UNIT = math.log(2)  # nats in a bit


# --- read ---


def read(served: Served, values: Read) -> Row:
    """Read a text; `state` says whether the context is reset at lines or documents."""
    with served.using(values.attention) as model:
        text = _text(model, values.text)
        record, words, scores = _record(served, model, text, values)
    known = [score for score in scores if not (score.oov or score.word == UNK)]
    return {
        "items": [{"start": 0, "end": len(text), "record": record, "words": words}],
        "words": len(words),
        **_mean(scores),
        "unknown": sum(word["unknown"] for word in words),
        "known": _mean(known),
    }


def _mean(scores: Iterable[WordScore]) -> Row:
    predicted = [score.surprisal for score in scores if not math.isnan(score.surprisal)]
    bits = math.fsum(predicted) / len(predicted) if predicted else None
    return {"bits": bits, "perplexity": None if bits is None or bits > MOST_BITS else 2.0**bits}


def _text(model: Model, text: str) -> str:
    """Return a text without marks; InputError if it has no words, or too many tokens."""
    text = model.texts.unmarked_text(text)
    if not written_words(text):
        raise InputError("text", limit="has no words", way_out="Write some.")
    refuse_long("text", len(model.tokenize(text)))
    return text


def _record(served: Served, model: Model, text: str, values: Read) -> tuple[Row, list[Row], list[WordScore]]:
    """Return the content of the page, the written words, and the scores of all tokens but an opening <eos>."""
    read = _read_by_token if model.predicts_words else _read_by_word
    record, scores = read(served, model, text, values)
    tokens: list[str] = record["tokens"]
    words = _words(model, text, scores, len(tokens) - len(scores))
    exact = model.texts.tokenizer.exact
    # the tokens as typed, as far as their letters can be found
    written = [_shown(model, token) for token in tokens] if exact else list(tokens)
    for word in words if not exact else ():
        ends = list(accumulate(len(tokens[at]) for at in word["tokens"]))  # lower-casing may add letters
        if ends[-1] == len(word["text"]) or len(ends) == 1:
            for at, start, end in zip(word["tokens"], [0, *ends], [*ends[:-1], None], strict=False):
                written[at] = word["text"][start:end]
    return record if written == tokens else record | {"written": written}, words, scores


def _shown(model: Model, token: str) -> str:
    """Return the letters of a token below the word, or the token if it has none."""
    text = b"".join(model.texts.tokenizer.spelled([token])).decode(errors="replace").strip()
    return token if not text or "\ufffd" in text else text


def _read_by_token(served: Served, model: Model, text: str, values: Read) -> tuple[Row, list[WordScore]]:
    words, starts = model.texts.to_attend(text, values.state)
    if served.attends:  # before reading; for a span buffer this count is too low, so it is repeated after reading
        _refuse_many(_weights(served, len(words), starts, values.attention))
    predict_first = model.texts.predict_first
    settings: dict[str, Any] = {"expected": values.expected, "features": True}
    settings |= {"predict_first": predict_first, "starts": starts, "word_ends": model.texts.tokenizer.word_ends}
    record = attention_record(model.model, model.vocabulary, words, looks=served.attends is not None, **settings)
    assert record.features is not None  # since features=True
    tokens, numbers = [record.words[0], *record.targets], (record.surprisal, record.entropy, record.rank)
    if served.attends:
        _refuse_many(record.weights.size)
        content = page_content(record)
    else:
        unknown = {token for token in tokens if token not in model.vocabulary or token == UNK}
        content = plain_content(tokens, unknown, finite((record.surprisal / _UNIT).tolist()), record.expected)
    if values.cache:
        following = model.vocabulary.encode(record.targets)
        cached = cached_words(record.features, following, record.surprisal, NEURAL_CACHE, starts)
        content = cached_content(content, record.surprisal, cached)
        nothing = np.full(len(record), math.nan)  # the whole distribution of a mixture is not computed
        numbers = cached.surprisal, nothing, np.zeros(len(record), dtype=np.int64)
    rows = list(zip(*(x.tolist() for x in numbers), strict=True))
    # the probability of a cache is not summed over tokens, so words are not corrected
    ends = [0.0] * len(record) if record.ends is None or values.cache else record.ends.tolist()
    if not predict_first:  # an opening <eos> is only read
        rows, ends = [(math.nan, math.nan, 0), *rows], [math.nan, *ends]
    return content, [
        WordScore(
            *(1, index, token, surprisal / _UNIT, entropy / _UNIT, rank or None, token not in model.vocabulary),
            end=end / _UNIT,
        )
        for index, (token, (surprisal, entropy, rank), end) in enumerate(
            zip(tokens[predict_first:], rows, ends, strict=True), 1
        )
    ]


def _weights(served: Served, words: int, starts: list[int], attention: str | None) -> int:
    """Return a lower bound of the weights of a text; 0 if a lesion sets another window."""
    if served.config is None or (attention or "uniform") != "uniform":
        return 0
    longest = max(end - start for start, end in pairwise([*starts, words])) - 2
    slots = served.config.model.memory.slots
    return (words - 1) * (longest if slots is None else min(slots, longest))


def _refuse_many(weights: int, most: int = MOST_WEIGHTS, verb: str = "draw") -> None:
    if weights > most:
        many = f"text: has {weights:,} weights to {verb}; must be at most {most:,}"
        raise InputError(f"{many}. Send it in parts; /api/score takes it whole.")


def _read_by_word(served: Served, model: Model, text: str, values: Read) -> tuple[Row, list[WordScore]]:
    """Read with a model of sub-words: scores are by written word, without candidates."""
    if values.cache:
        raise InputError(
            "cache", "true", f"{model.folder} is {model.kind}, which shows no states to compare", "Leave it out."
        )
    scores = list(model.score(text, state=values.state, eos=True))
    bits = [score.surprisal for score in scores]
    unknown = {score.word for score in scores if score.oov}
    return plain_content([EOS, *(score.word for score in scores)], unknown, bits, [[] for _ in scores]), scores


def _words(model: Model, text: str, scores: Sequence[WordScore], first: int) -> list[Row]:
    """Return the written words, with their offsets in the text and the indices of their tokens in the record."""
    return [
        {
            "text": word.word,
            "start": word.start,
            "end": word.end,
            "surprisal": word.surprisal,
            "entropy": word.entropy,
            "rank": word.rank,
            "unknown": word.oov or UNK in word.tokens.split(" "),
            "tokens": tokens,
        }
        for word, tokens in _written(model, text, scores, first)
        if word.tokens
    ]


def _written(
    model: Model, text: str, scores: Sequence[WordScore], first: int
) -> Iterator[tuple[WrittenScore, list[int]]]:
    """Combine the scores of tokens into scores of written words; `first` is the index of the first token."""
    if not model.texts.tokenizer.exact:
        sizes = [len(tokens) for line in text.split("\n") for tokens in model.texts.cut(line)]
        places = iter(at for at, score in enumerate(scores, first) if score.word != EOS)
        for word, size in zip(written_scores(text, scores, sizes), sizes, strict=True):
            yield word, list(islice(places, size))
        return
    start = begin = 0
    for line in text.split("\n"):
        if not line and begin < len(scores) and scores[begin].word != EOS:  # the record begins after blank lines
            start += 1
            continue
        end = next((at for at in range(begin, len(scores)) if scores[at].word == EOS), len(scores))
        # in the record blank lines at the ends of a text have no <eos>
        closing = scores[end] if end < len(scores) else WordScore(1, 0, EOS, math.nan, math.nan, None, False)
        indices = iter(range(first + begin, first + end))
        for word in model.texts.written(line, [*scores[begin:end], closing]):
            tokens = [next(indices) for _ in word.tokens.split(" ")]
            yield replace(word, start=word.start + start, end=word.end + start), tokens
        start, begin = start + len(line) + 1, end + 1


# --- the rows of `spanlm score` and `spanlm attend` ---


def score(served: Served, values: Score) -> list[Row]:
    """Return the rows of `spanlm score`, of tokens or of written words."""
    cache = NEURAL_CACHE if values.cache else None
    settings: dict[str, Any] = {"state": values.state, "base": BASES[values.base], "cache": cache}
    with served.using(values.attention) as model:
        lines = _text(model, values.text).removesuffix("\n").split("\n")
        if values.rows == "tokens":
            return [as_row(word) for word in model.score(lines, **settings)]
        rows, unknown = list[Row](), 0
        for number, item in enumerate(model.score_items(lines, **settings), 1):
            if values.state == "line" or (values.state == "document" and not item):
                unknown = 0
            rows += item_rows(number, item, unknown)
            unknown += sum(word.oov for word in item)
        return rows


def attend(served: Served, values: Attend) -> tuple[tuple[str, ...], list[tuple[object, ...]]]:
    """Return the columns and the rows of `spanlm attend`."""
    text, state = values.text, values.state
    with served.using(values.attention) as model:
        _text(model, text)
        trained = require_weights(model, "attend")
        words, starts = model.texts.to_attend(text, state)
        _refuse_many(_weights(served, len(words), starts, values.attention), MOST_ROWS, "list")
        record = trained.attend(text, state=state)
        # a lesion or slots of several words change the first count
        _refuse_many(record.weights.size, MOST_ROWS, "list")
        columns, rows = attention_table(record)
        return columns, list(rows)


def page(served: Served, values: Page) -> str:
    with served.using(values.attention) as model:
        record, _, _ = _record(served, model, _text(model, values.text), values)
        headings = model.headings()
        about = [headings["about"], _COUNTED[values.state], *[NEURAL_CACHE.description] * values.cache]
        return render_content(record | {"lesion": values.attention}, headings["title"], "; ".join(about))


# --- the next word ---


def _continuations(model: Model, values: GoOn) -> Continuations:
    """Return what can follow a prompt and words drawn after it; InputError: they are too many, or a word is unknown."""
    refuse_long("prompt", len(model.tokenize(values.prompt)) + len(values.words))
    if unknown := [word for word in values.words if word not in model.vocabulary]:
        raise InputError("words", unknown[0], "is not in the vocabulary, from which words are drawn")
    return model.continuations(values.prompt, values.words)


def candidates(model: Model, drawn: Drawn, count: int, before: list[str]) -> tuple[list[Row], torch.Tensor]:
    """Return the likeliest words after some that were drawn `before`, and log p (V,) with these and <unk> at −inf."""
    log_p = drawn.log_p.double().clone()
    log_p[model.vocabulary.unk_id] = -math.inf
    top = log_p.topk(min(count, len(log_p) - 1))
    listed = zip(map(model.vocabulary.word, top.indices.tolist()), top.values.tolist(), strict=True)
    likeliest = [
        {"word": word, **_text_of(model, [*before[-3:], word]), "log_probability": value} for word, value in listed
    ]
    log_p[top.indices] = -math.inf
    return likeliest, log_p


def _text_of(model: Model, words: list[str]) -> Row:
    """Return, for tokens below the word, the `text` of the last one; of a character, its last token has all bytes."""
    tokenizer = model.texts.tokenizer
    return {"text": [*tokenizer.readable(words)][-1]} if tokenizer.exact else {}


def next_word(served: Served, values: Next) -> Row:
    """Return the candidates for the next word, and the sums over all others."""
    with served.using(values.attention) as model:
        drawn = next(_continuations(model, values).draw(GenerationOptions(length=1, temperature=0.0, unk=True)))
        likeliest, others = candidates(model, drawn, values.count, values.words)
        tails = [float(torch.logsumexp(others / temperature, 0)) for temperature in values.temperatures]
        unk = float(drawn.log_p[model.vocabulary.unk_id].double().exp())
    return {"candidates": likeliest, "rest": float(others.exp().sum()), "unk": unk, "tails": tails}


def generate(served: Served, values: Generate) -> Callable[[], Row | None]:
    """Start to generate after a prompt; each call of the result returns the next word, and None after the last."""
    with served.using(values.attention) as model:
        settings = {name: getattr(values, name) for name in kinds(GenerationOptions)}
        words: Iterator[Drawn] = _continuations(model, values).draw(GenerationOptions(**settings))
        before = [*values.words]

    def next_one() -> Row | None:
        with served.using():
            drawn = next(words, None)
            if drawn is None:
                return None
            id = model.vocabulary.id(drawn.word)
            likeliest, _ = candidates(model, drawn, SHOWN, before)
            before.append(drawn.word)
            return {
                "word": drawn.word,
                **_text_of(model, before[-4:]),
                "log_probability": float(drawn.log_p[id]),
                "candidates": likeliest,
            }

    return next_one
