"""The block around a layer, against the Llama of Hugging Face."""

import pytest
import torch

from spanlm.models.encoders.blocks import FeedForward, start_blocks
from spanlm.models.interfaces import Init
from tests.models.small import values


@pytest.mark.slow  # it loads transformers
def test_the_feed_forward_branch_is_the_one_of_llama() -> None:
    llama = pytest.importorskip("transformers.models.llama.modeling_llama")
    from transformers import LlamaConfig

    branch = FeedForward(6, 10).double()
    with torch.no_grad():
        branch.norm.weight.uniform_(0.5, 2)
    mlp = llama.LlamaMLP(LlamaConfig(hidden_size=6, intermediate_size=10, num_attention_heads=1)).double()
    norm = llama.LlamaRMSNorm(6, eps=1e-6).double()
    mlp.load_state_dict(branch.mlp.state_dict())
    norm.load_state_dict(branch.norm.state_dict())
    x = values(4, 3, 6)
    # the norm there is computed in float32
    torch.testing.assert_close(branch(x), x + mlp(norm(x)), rtol=0, atol=1e-6)


def test_reduced_precision_rounds_nothing_but_products() -> None:
    branch, x = FeedForward(6, 10), values(4, 3, 6).float()
    with torch.autocast("cpu", torch.bfloat16):
        norm, y = branch.norm(x.bfloat16()), branch(x)
    assert norm.dtype == y.dtype == torch.float32
    torch.testing.assert_close(norm, branch.norm(x.bfloat16().float()))
    torch.testing.assert_close(y, branch(x), rtol=0, atol=0.02)
    assert not torch.equal(y, branch(x))


def test_weights_start_in_range_and_branches_in_a_smaller_one() -> None:
    branch = FeedForward(90)
    start_blocks(branch, Init(0.3, 0.0), layers=8)
    assert branch.norm.weight.eq(1).all()
    for projection, limit in ((branch.mlp.gate_proj, 0.3), (branch.mlp.up_proj, 0.3), (branch.mlp.down_proj, 0.075)):
        assert 0.98 * limit < projection.weight.abs().max() <= limit


@pytest.mark.parametrize(("size", "hidden"), [(3, 8), (12, 32), (650, 1736)])
def test_size_by_default(size: int, hidden: int) -> None:
    assert FeedForward(size).mlp.up_proj.out_features == hidden
