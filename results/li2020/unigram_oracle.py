"""What the oracle policy of Li et al. (2020) makes of a second opinion that knows no context.

    python results/li2020/unigram_oracle.py RUN… > results/li2020/unigram-oracle.json

At each word of valid the better of a trained model and of the relative frequencies of the words of train; and the mean
reward (Eq. 12-13, published constants) that this second opinion would have in a span buffer's place.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

import spanlm
from spanlm.evaluation.scoring import score
from spanlm.models.memories.span_buffer import RewardConfig
from spanlm.models.memories.span_buffer.mixture import rewards
from spanlm.store.provenance import provenance


def measured(run: str) -> dict[str, Any]:
    """Compare a run with unigrams."""
    model = spanlm.load(run, device="cpu")
    corpus = model.corpus()
    ids = corpus.splits["train"].ids
    frequency = torch.from_numpy(np.bincount(ids, minlength=len(model.vocabulary)) / len(ids)).log()
    protocol = model.texts.protocol(corpus, "valid", precision="bf16")
    batcher = protocol.batcher(corpus, "valid")
    scored = list(score(model.model, batcher.segments(), protocol))
    p = torch.cat([one.log_p[one.segment.mask].double() for one in scored])
    q = torch.cat([frequency[one.segment.targets[one.segment.mask]] for one in scored])
    return {
        "run": "/".join(Path(run).parts[-3:]),
        "perplexity": _perplexity(p),
        "unigram_perplexity": _perplexity(q),
        "oracle": _perplexity(torch.maximum(p, q)),
        "share_where_unigrams_are_better": (q > p).double().mean().item(),
        "mean_reward": rewards(p, q, RewardConfig()).mean().item(),
        "mean_of_both": _perplexity(torch.logaddexp(p, q) - math.log(2)),
    }


def _perplexity(log_p: torch.Tensor) -> float:
    return math.exp(-log_p.mean().item())


if __name__ == "__main__":
    record = {"models": [measured(run) for run in sys.argv[1:]], "started": provenance(torch.device("cpu"))}
    sys.stdout.write(json.dumps(record, indent=1) + "\n")
