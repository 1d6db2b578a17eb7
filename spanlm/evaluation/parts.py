"""What each part of a model with a span buffer is worth by itself (Li et al., 2020, Table 3 and Figure 4).

p is what the encoder alone predicts, q what the buffer alone does, p̃ the model, which mixes both (Eq. 9). Every token
counts once in each number, as in the model's own perplexity: where nothing is remembered there is no q and the model is
p alone, and so are "the buffer alone" and the oracle there. Shares are of the tokens that had anything to read, as in
the log of a training. All of it comes from the pass in which the model is measured: if its weights follow the text,
they do so by what the whole model learns, and each part is asked before they do.
"""

from __future__ import annotations

from dataclasses import dataclass

from spanlm.errors import InputError
from spanlm.evaluation.part_tally import PartTally
from spanlm.evaluation.scoring import Tally, perplexity


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


def parts_of(total: Tally) -> Parts | None:
    """Say what the sums over a text mean; None of a model without a span buffer."""
    sums = total.parts
    if sums is None:
        return None
    alone = sums.encoder_nll, sums.buffer_nll, sums.oracle_nll
    encoder, buffer, oracle = ((nll + sums.other_nll) / total.tokens for nll in alone)
    return Parts(
        encoder=perplexity(encoder),
        buffer=perplexity(buffer),
        oracle=perplexity(oracle),
        encoder_nll=encoder,
        buffer_nll=buffer,
        oracle_nll=oracle,
        remembering=int(sums.steps),
        utilisation=_mean(sums.utilisation, sums),
        oracle_utilisation=_mean(sums.oracle_utilisation, sums),
        gate=_mean(sums.gate, sums),
        reward=_mean(sums.reward, sums),
    )


def _mean(value: float, sums: PartTally) -> float | None:
    return value / sums.steps if sums.steps else None


def require_parts(kind: str, what: str) -> None:
    """Refuse to take a model apart that has one part.

    Args:
        kind: of its memory.
        what: is asked for.

    Raises:
        InputError: it is no span buffer.
    """
    if kind != "span_buffer":
        raise InputError(
            f"{what}: this model predicts in one part (model.memory.kind={kind}); only a span buffer predicts beside "
            "the encoder. Train one with model.memory.kind=span_buffer."
        )
