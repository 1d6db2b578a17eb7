"""What each part of a mixture of two predictions is worth by itself (Li et al., 2020, Table 3 and Figure 4).

p is what the encoder alone predicts, q what the buffer alone does, p̃ the model, which mixes both (Eq. 9). Every token
counts once in each number, as in the model's own perplexity: where nothing is remembered there is no q and the model is
p alone, and so are "the buffer alone" and the oracle there. Shares are of the tokens that had anything to read, as in
the log of a training. All of it comes from the pass in which the model is measured: if its weights follow the text,
they do so by what the whole model learns, and each part is asked before they do.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from spanlm.errors import InputError
from spanlm.evaluation.scoring import perplexity
from spanlm.models.memories import AnyMemoryConfig, SpanBufferConfig

SHARES = ("reward", "gate", "utilisation", "oracle_utilisation")
"""Means over the tokens that had anything to read."""


@dataclass(frozen=True)
class Parts:
    """The two parts of a mixture over one text.

    The oracle takes, at each token, the part that gave it more. It is a bound and no model's perplexity: the choice is
    made after the token is seen. No gate can do better.

    Attributes:
        encoder: perplexity of p ("using only sequential RNN").
        buffer: perplexity of q, and of p where nothing is remembered ("using only sequential neural buffer").
        oracle: exp of the mean of −log max(p, q): the bound ("oracle policy").
        encoder_nll: nats a token.
        buffer_nll: the same of the buffer.
        oracle_nll: the same of the bound.
        remembering: how many of the tokens had anything to read; the numbers below are of these, None if there are
            none.
        utilisation: PoU, the share with λ >= 0.5 (Eq. 15); a temperature changes nothing about it.
        oracle_utilisation: oracle PoU, the share with q > p.
        gate: mean λ, without temperature.
        reward: mean r (Eq. 12-13).
    """

    encoder: float
    buffer: float
    oracle: float
    encoder_nll: float
    buffer_nll: float
    oracle_nll: float
    remembering: int
    utilisation: float | None
    oracle_utilisation: float | None
    gate: float | None
    reward: float | None


def parts_of(sums: Mapping[str, float], tokens: int) -> Parts | None:
    """Say what the sums of a text's metrics mean; None of a model that predicts in one part."""
    if "buffer_nll" not in sums:
        return None
    alone = sums["encoder_nll"], sums["buffer_nll"], sums.get("oracle_nll", math.nan)
    encoder, buffer, oracle = ((nll + sums.get("other_nll", 0.0)) / tokens for nll in alone)
    steps = sums["steps"]
    reward, gate, utilisation, oracle_utilisation = (sums[name] / steps if steps else None for name in SHARES)
    return Parts(
        encoder=perplexity(encoder),
        buffer=perplexity(buffer),
        oracle=perplexity(oracle),
        encoder_nll=encoder,
        buffer_nll=buffer,
        oracle_nll=oracle,
        remembering=int(steps),
        utilisation=utilisation,
        oracle_utilisation=oracle_utilisation,
        gate=gate,
        reward=reward,
    )


def log_of(sums: Mapping[str, float], tokens: int) -> dict[str, float]:
    """Return what a log says of the sums over a text; empty where no word had anything to read.

    encoder_nll and buffer_nll: nats a token of each part alone, over all tokens, see `Parts`. The others are of the
    `steps` that had anything to read: reward: mean r; gate: mean λ; utilisation: PoU, the share with λ >= 0.5 (Li et
    al., 2020, Eq. 15); oracle_utilisation: with q > p; of training reward_loss: −η r log λ.
    """
    found, steps = parts_of(sums, tokens), sums.get("steps", 0.0)
    if found is None or not steps:
        return {}
    named = ("encoder_nll", "buffer_nll", *SHARES)
    means = {"steps": float(found.remembering), **{name: getattr(found, name) for name in named}}
    return means | ({"reward_loss": sums["reward_loss"] / steps} if "reward_loss" in sums else {})


def log_of_training(sums: Mapping[str, float]) -> dict[str, float]:
    """Return the same of an epoch's training: `log_of` all its words."""
    # a checkpoint of an earlier version tells of words with spans alone, and then their means are all there is
    return log_of(sums, round(sums.get("steps", 0.0) + sums.get("other_steps", 0.0)))


def require_span_buffer(memory: AnyMemoryConfig, what: str) -> SpanBufferConfig:
    """Return the configuration of a span buffer; only a model with one has a gate and predicts in two parts.

    Args:
        memory: of the model.
        what: is asked for.

    Raises:
        InputError: it is another memory.
    """
    if not isinstance(memory, SpanBufferConfig):
        raise InputError(
            f"{what}: this model has no span buffer (model.memory.kind={memory.kind}), so it has no gate and predicts "
            "in one part. Train one with model.memory.kind=span_buffer."
        )
    return memory
