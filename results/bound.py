"""How near a span buffer's q can come to p, whatever its attention: `python -m results.bound RUN`; li2020.jsonl.

    min over w on the simplex of KL(p ‖ q_w),    q_w = softmax(O ξ + b),    ξ = Σ_i w_i s_i

RUN is a trained model with a tied softmax and no memory, and stays as it is; s_i are the entries of a buffer at a step
of valid. KL is convex in w: every start leads to the least value, and at any w that is at most w·g − min_i g_i below
(*gap*; g is the gradient). Beside it a predictor blind to x_t, Σ_x p(x_t = x | before) p(· | before, x), over the words
x that are most probable: the nearest to p of all that know the text before x_t alone.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

import spanlm
from results.record import save
from results.records import Record
from spanlm.models.interfaces import LMState, MixingHead
from spanlm.models.language_model import LanguageModel
from spanlm.models.memories import SpanBufferConfig
from spanlm.models.memories.span_buffer.memory import Grid
from spanlm.store.provenance import starts

BUFFERS = {
    "32 spans of 8 before t": SpanBufferConfig(buffer_size=256, span_length=8),
    "256 spans of 8 before t": SpanBufferConfig(buffer_size=2048, span_length=8),
    "256 spans of 8, the newest at t": SpanBufferConfig(buffer_size=2048, span_length=8, newest="current"),
    "2,048 words before t": SpanBufferConfig(buffer_size=2048, words=True),
}
STEPS, BACK, RATE, LIKELY = 800, 20, 0.3, 1_000
"""Steps, every how many an entry is given more weight, Adam's rate, how many words a blind predictor considers."""


def read(model: LanguageModel, words: Tensor, places: Sequence[int]) -> tuple[Tensor, list[LMState]]:
    """Return the outputs h (N, H) up to the last place, and the state before each place."""
    outputs, states, state = list[Tensor](), list[LMState](), model.init_state(1)
    for first, end in zip([0, *places], [*places, places[-1] + 1], strict=True):
        readout, state = model(words[first:end].unsqueeze(1), state)
        assert readout.hidden is not None
        outputs.append(readout.hidden[:, 0])
        states.append(state)
    return torch.cat(outputs), states[:-1]


def entries(outputs: Tensor, place: int, buffer: SpanBufferConfig) -> Tensor:
    """Return the entries (m, H) of a buffer at a place, the oldest first."""
    grid = Grid(buffer.stride, buffer.slots, 1, buffer.reach)
    states = outputs[place + 1 - grid.carried - buffer.nearest_lag : place + 1].unsqueeze(1)
    return grid.spans(states, states.new_ones(len(states), 1, dtype=torch.bool))[0][: buffer.slots, 0]


def nearest(head: MixingHead, log_p: Tensor, slots: Tensor, start: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Minimise KL(p ‖ q_w) for slots (N, m, H) from the logits `start` (N, m); return KL, gap (N,) and log q (N, V)."""
    logits = start.clone()
    adam = torch.optim.Adam([logits], lr=RATE)
    for step in range(STEPS + 1):
        weights = logits.softmax(-1)
        reading = torch.einsum("nm,nmh->nh", weights, slots).requires_grad_()
        log_q = head.own_log_probs(reading)
        kl = (log_p.exp() * (log_p - log_q)).sum(-1)
        (slope,) = torch.autograd.grad(kl.sum(), reading)
        gradient = torch.einsum("nh,nmh->nm", slope, slots)
        excess = gradient - (weights * gradient).sum(-1, keepdim=True)
        share = 1 - step / STEPS
        if step % BACK:
            adam.param_groups[0]["lr"], logits.grad = RATE * max(share, 0.05), weights * excess
            adam.step()
        elif step < STEPS:  # the softmax hardly moves weights that are nearly 0: give the best entry some
            best = torch.nn.functional.one_hot(excess.argmin(-1), weights.shape[1])
            logits.copy_(torch.lerp(weights, best.to(weights), 0.01 * share).clamp(min=1e-12).log())
    return kl.detach(), -excess.amin(-1), log_q.detach()


def blind(model: LanguageModel, head: MixingHead, before: Tensor, state: LMState) -> tuple[Tensor, float]:
    """Predict without the last word: log probabilities (V,), and how probable the words are that are considered."""
    log_prior, likely = head.own_log_probs(before).topk(LIKELY)
    readout, _ = model(likely.unsqueeze(0), state.select(torch.zeros(LIKELY, dtype=torch.long)))
    joint = head.own_log_probs(readout.features[0]) + log_prior.log_softmax(-1).unsqueeze(-1)
    return joint.logsumexp(0), float(log_prior.exp().sum())


def main() -> None:
    """Measure, and write the records."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--places", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(1)
    run = spanlm.load(options.run, device="cpu")
    model, random = run.model.requires_grad_(False), torch.Generator().manual_seed(options.seed)
    assert isinstance(model, LanguageModel) and isinstance(model.head, MixingHead)
    corpus, split = run.texts.part(None, "valid")
    tokens = torch.as_tensor(corpus.splits[split].ids.copy(), dtype=torch.long)
    words, first = torch.cat([tokens.new_full((1,), corpus.vocabulary.eos_id), tokens[:-1]]), 2048 + 8
    drawn = torch.randperm(len(words) - first, generator=random)[: options.places] + first
    places = sorted(drawn.tolist())
    outputs, states = read(model, words, places)
    log_p, targets = model.head.own_log_probs(outputs[places]), tokens[places].unsqueeze(1)
    loss = -log_p.gather(1, targets).mean()
    pairs = [blind(model, model.head, outputs[n - 1], state) for n, state in zip(places, states, strict=True)]
    log_blind = torch.stack([log_q for log_q, _ in pairs])
    blind_kl = (log_p.exp() * (log_p - log_blind)).sum(-1)
    about: Record = {"scale": "own size", "command": " ".join(["python -m results.bound", *sys.argv[1:]])}
    about |= {
        "run": str(options.run),
        "model": run.config.model.description,
        "trained": starts(options.run),
        "corpus": corpus.name,
        "split": split,
    }
    about |= {"places": len(places), "drawn with seed": options.seed, "perplexity of p there": float(loss.exp())}
    covered = sum(share for _, share in pairs) / len(pairs)
    rows: dict[str, Record] = {
        "blind to x_t": {"behind": float(blind_kl.mean()), "words considered": LIKELY, "their share": covered}
    }
    for name, buffer in BUFFERS.items():
        slots = torch.stack([entries(outputs, place, buffer) for place in places])
        initial = torch.zeros(slots.shape[:2]), 3 * torch.randn(slots.shape[:2], generator=random)
        (kl, gap, log_q), (other, other_gap, _) = (nearest(model.head, log_p, slots, start) for start in initial)
        rows[name] = {
            "behind": float(kl.mean()),
            "behind at the word that came": float((log_p - log_q).gather(1, targets).mean()),
            "behind the blind": float((kl - blind_kl).mean()),
            "largest gap": float(torch.maximum(gap, other_gap).max()),
            "starts apart": float((kl - other).abs().max()),
        }
    what = (
        "nats a token of KL(p, q) with the best weights on a buffer's entries, p of a trained model that stays frozen"
    )
    save("li2020", "bound", what, {name: about | numbers for name, numbers in rows.items()})


if __name__ == "__main__":
    main()
