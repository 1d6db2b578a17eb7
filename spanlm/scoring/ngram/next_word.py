r"""An n-gram model as a `NextWordModel`, alone or with a cache of recent words.

With p_n the n-gram model's distribution after the last n-1 words and λ the share of the cache, if any,

    p(w) = (1 − λ) p_n(w | h) + λ c(w) / Σ_v c(v),    c(w): how often w is among the last C words read

(Kuhn & De Mori, 1990: a unigram cache, which holds `<eos>`, too). `<eos>` is predicted as `</s>` and read as `<s>`, so
the n-gram model ignores earlier lines; its cache does not.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
import torch
from torch import Tensor

from spanlm.data.vocabulary import Vocabulary
from spanlm.models.interfaces import Head, LMState, NextWordModel, Readout, Scores
from spanlm.scoring.ngram.model import END, START, ArpaModel, Floats, Integers

_LN10 = math.log(10)


@dataclass(frozen=True, kw_only=True)
class UnigramCache:
    """A cache of recent words, and its share.

    Attributes:
        window: C, the number of words that it holds, `<eos>` included.
        share: λ, its share of the probability.
    """

    window: int
    share: float


class NgramModel(NextWordModel):
    """An n-gram model over the words of a vocabulary. It has no parameters.

    Words that the model lacks share p(<unk>) equally with `<unk>`. The probability of words that the vocabulary lacks
    is lost, so the distribution then sums to less than 1.

    Attributes:
        arpa: the n-gram model.

    Args:
        opened: whether <eos> is read before a text, and stands for <s>; if not, every context begins as a line.
    """

    head: NgramHead

    def __init__(
        self, arpa: ArpaModel, vocabulary: Vocabulary, cache: UnigramCache | None = None, *, opened: bool = True
    ) -> None:
        super().__init__()
        self.arpa: ArpaModel = arpa
        self.cache: UnigramCache | None = cache
        self._opened = opened
        self.vocabulary_size: int = len(vocabulary)
        self.head = NgramHead(arpa, vocabulary, cache)
        ids, _ = self.head.columns
        self._read: Tensor
        self.register_buffer("_read", torch.from_numpy(np.where(ids == arpa.ids[END], arpa.ids[START], ids)))

    def init_state(self, batch_size: int) -> LMState:
        # where <eos> opens texts, a context without it is a window, and nothing is known of what was before
        words = torch.full((self.arpa.order - 1, batch_size), -1, device=self.device)
        if not self._opened:
            words[-1:] = self.arpa.ids[START]
        held = {} if self.cache is None else {"cache": words.new_full((self.cache.window, batch_size), -1)}
        return LMState({"words": words}, held)

    def forward(self, tokens: Tensor, state: LMState) -> tuple[Readout, LMState]:
        """Read tokens (T, B); the readout holds the contexts of the next words."""
        words = torch.cat([state.encoder["words"], self._read[tokens]])
        contexts = words.unfold(0, self.arpa.order - 1, 1)[1:]
        starts = (contexts == self.arpa.ids[START]).long()
        # words before the last <s> belong to another line
        contexts = contexts.masked_fill(starts.flip(-1).cumsum(-1).flip(-1) > starts, -1)
        recent, held = contexts[..., :0], dict[str, Tensor]()
        if self.cache is not None:
            tokens_read = torch.cat([state.memory["cache"], tokens])
            recent = tokens_read.unfold(0, self.cache.window, 1)[1:]
            held = {"cache": tokens_read[len(tokens) :]}
        after = LMState({"words": words[len(tokens) :]}, held)
        nothing = torch.zeros(*tokens.shape, 0, device=tokens.device)  # equal for all words, to a neural cache
        return NgramReadout(nothing, contexts=contexts, recent=recent), after


@dataclass(frozen=True)
class NgramReadout(Readout):
    """`contexts` (T, B, n-1) of the n-gram model, in its ids, and the words `recent` (T, B, C) of the cache."""

    contexts: Tensor = field(default_factory=lambda: torch.empty(0))
    recent: Tensor = field(default_factory=lambda: torch.empty(0))

    def map(self, function: Callable[[Tensor], Tensor]) -> Self:
        return replace(super().map(function), contexts=function(self.contexts), recent=function(self.recent))


class NgramHead(Head):
    """Looks words up in an n-gram model, and mixes a cache in if there is one."""

    def __init__(self, arpa: ArpaModel, vocabulary: Vocabulary, cache: UnigramCache | None = None) -> None:
        super().__init__()
        self.columns: tuple[Integers, Floats] = arpa.columns(vocabulary)
        self._arpa, self._cache = arpa, cache

    def score(self, readout: Readout, targets: Tensor) -> Scores:
        """Score targets (T, B), float64; without a cache, `ArpaModel.score` times ln 10."""
        return Scores(self._mixed(*self.each(readout, targets)))

    def each(self, readout: Readout, targets: Tensor) -> Tensor:
        """Return log p(target) under the n-gram model and under the cache, (2, T, B) float64."""
        contexts, recent = _last_words(readout)
        ids, rows = targets.flatten().cpu().numpy(), contexts.flatten(0, -2).cpu().numpy()
        known, shift = self.columns
        log10 = self._arpa.look_up(known[ids], rows)[0] + shift[ids]
        log_p = torch.from_numpy(log10.astype(np.float64)).view(targets.shape).to(targets.device) * _LN10
        counts = (recent == targets.unsqueeze(-1)).sum(-1, dtype=torch.float64)
        return torch.stack([log_p, (counts / (recent >= 0).sum(-1)).log()])

    def log_probs(self, readout: Readout) -> Tensor:
        """Return log p of every word, (T, B, V), float32."""
        contexts, recent = _last_words(readout)
        log10: Floats = self._arpa.distributions(contexts.flatten(0, -2).cpu().numpy(), self.columns)
        log_p = torch.from_numpy(log10).view(*contexts.shape[:-1], -1).to(contexts.device).mul_(_LN10)
        if self._cache is None:
            return log_p
        held = (recent >= 0).to(log_p.dtype)
        counts = torch.zeros_like(log_p).scatter_add_(-1, recent.clamp(min=0), held)
        return self._mixed(log_p, (counts / held.sum(-1, keepdim=True)).log())

    def _mixed(self, log_p: Tensor, cached: Tensor) -> Tensor:
        if self._cache is None:
            return log_p
        return torch.logaddexp(log_p + math.log1p(-self._cache.share), cached + math.log(self._cache.share))


def _last_words(readout: Readout) -> tuple[Tensor, Tensor]:
    assert isinstance(readout, NgramReadout)  # the model's forward returns this type
    return readout.contexts, readout.recent
