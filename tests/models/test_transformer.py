"""The Transformer encoder and its blocks: against a loop, and the same weights in Hugging Face's Llama and Mistral."""

from typing import Any

import pytest
import torch
from torch import Tensor

from spanlm.models.encoders import TransformerConfig
from spanlm.models.encoders.blocks import BlockStack, FeedForward, start_blocks
from spanlm.models.interfaces import Init
from tests import reference
from tests.models.small import EMBEDDING, assert_same, build, values
from tests.models.twins import assert_twin, branches, projected

CONFIGS = [
    TransformerConfig(hidden_size=8, layers=2, heads=2, window=3),
    TransformerConfig(hidden_size=EMBEDDING, layers=1, heads=3, window=20, feedforward_size=4),
]
every_config = pytest.mark.parametrize("config", CONFIGS, ids=["windowed", "whole"])


def by_loops(encoder: BlockStack, config: TransformerConfig, x: Tensor) -> Tensor:
    x = projected(encoder, x)
    for block, layer in zip(branches(encoder), encoder.layers, strict=True):
        matrices = reference.SelfAttention(*(getattr(layer, f"{p}_proj").weight for p in "qkvo"))
        y = reference.self_attention(reference.normed(x, block.norm), config.window, config.heads, matrices)
        x = reference.block(x, y, block)
    return reference.normed(x, encoder.norm.weight)


@every_config
@pytest.mark.parametrize("cut", [6, 2])
def test_is_a_loop_over_streams_steps_and_lags(config: TransformerConfig, cut: int) -> None:
    """Values and gradients of one segment, and values of a text in pieces."""
    encoder = build(config, EMBEDDING)
    x = values(6, 2, EMBEDDING).requires_grad_()
    expected = by_loops(encoder, config, x)
    state, outputs = encoder.init_state(2), []
    for part in x.split(cut):
        h, state = encoder(part, state)
        outputs.append(h)
    if cut == len(x):
        assert_twin(outputs, [expected], [x, *encoder.parameters()])
    assert_same([torch.cat(outputs)], [expected])


def in_their_form(encoder: BlockStack, config: TransformerConfig, window: int | None) -> Any:
    """A model of transformers with the encoder's weights: Llama, or Mistral, whose window counts the step itself."""
    transformers = pytest.importorskip("transformers")
    kind, more = ("Llama", {}) if window is None else ("Mistral", {"sliding_window": window + 1})
    sizes = {"hidden_size": config.hidden_size, "num_hidden_layers": config.layers, "head_dim": config.head_size}
    sizes |= {"num_attention_heads": config.heads, "num_key_value_heads": config.heads, "vocab_size": 3}
    theirs = getattr(transformers, f"{kind}Config")(
        **sizes, intermediate_size=encoder.feedforwards[0].mlp.up_proj.out_features, rms_norm_eps=1e-6, **more
    )
    theirs._attn_implementation = "eager"
    model = getattr(transformers, f"{kind}Model")(theirs).double()
    weights = {"norm.weight": encoder.norm.weight, "embed_tokens.weight": model.embed_tokens.weight}
    for n, layer in enumerate(encoder.layers):
        weights |= {f"layers.{n}.self_attn.{p}_proj.weight": getattr(layer, f"{p}_proj").weight for p in "qkvo"}
        branch, mlp = encoder.feedforwards[n], encoder.feedforwards[n].mlp
        weights |= {f"layers.{n}.mlp.{p}_proj.weight": getattr(mlp, f"{p}_proj").weight for p in ("gate", "up", "down")}
        weights[f"layers.{n}.input_layernorm.weight"] = encoder.norms[n].weight
        weights[f"layers.{n}.post_attention_layernorm.weight"] = branch.norm.weight
    model.load_state_dict(weights, strict=True)
    return model


@pytest.mark.slow
@pytest.mark.parametrize("window", [None, 4])
def test_is_a_llama_and_with_a_window_a_mistral(window: int | None) -> None:
    config = TransformerConfig(hidden_size=12, layers=2, heads=2, window=window or 50)
    encoder = build(config, 12)
    x: Tensor = values(11, 3, 12)
    with torch.no_grad():
        theirs = in_their_form(encoder, config, window)(inputs_embeds=x.transpose(0, 1)).last_hidden_state
        ours, _ = encoder(x, encoder.init_state(3))
    torch.testing.assert_close(ours, theirs.transpose(0, 1), rtol=1e-5, atol=1e-5)  # their angles are float32


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
