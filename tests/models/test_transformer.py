"""The Transformer encoder: against a loop, and against the same weights in Hugging Face's Llama and Mistral."""

from typing import Any

import pytest
import torch
from torch import Tensor

from spanlm.models.encoders import TransformerConfig
from spanlm.models.encoders.transformer import TransformerEncoder
from tests import reference
from tests.models.small import EMBEDDING, assert_same, build, values
from tests.models.twins import assert_twin

CONFIGS = [
    TransformerConfig(hidden_size=8, layers=2, heads=2, window=3),
    TransformerConfig(hidden_size=EMBEDDING, layers=1, heads=3, window=20, feedforward_size=4),
]
every_config = pytest.mark.parametrize("config", CONFIGS, ids=["windowed", "whole"])


def layer_of(layer: Any) -> reference.TransformerLayer:
    branch = layer.feedforward
    matrices = [m.weight for m in (layer.q_proj, layer.k_proj, layer.v_proj, layer.o_proj)]
    return reference.TransformerLayer(
        layer.norm.weight, *matrices, branch.norm.weight, *(getattr(branch.mlp, f"{n}_proj").weight for n in PARTS)
    )


PARTS = "gate", "up", "down"


@every_config
@pytest.mark.parametrize("cut", [6, 2])
def test_is_a_loop_over_streams_steps_and_lags(config: TransformerConfig, cut: int) -> None:
    """Values and gradients of one segment, and values of a text in pieces."""
    encoder = build(config, EMBEDDING)
    x = values(6, 2, EMBEDDING).requires_grad_()
    w_in = None if encoder.input is None else encoder.input.weight
    layers = [layer_of(layer) for layer in encoder.layers]
    expected = reference.transformer(x, config.window, config.heads, layers, encoder.norm.weight, w_in)
    state, outputs = encoder.init_state(2), []
    for part in x.split(cut):
        h, state = encoder(part, state)
        outputs.append(h)
    if cut == len(x):
        assert_twin(outputs, [expected], [x, *encoder.parameters()])
    assert_same([torch.cat(outputs)], [expected])


def in_their_form(encoder: TransformerEncoder, config: TransformerConfig, window: int | None) -> Any:
    """A model of transformers with the encoder's weights: Llama, or Mistral, whose window counts the step itself."""
    transformers = pytest.importorskip("transformers")
    kind, more = ("Llama", {}) if window is None else ("Mistral", {"sliding_window": window + 1})
    sizes = {"hidden_size": config.hidden_size, "num_hidden_layers": config.layers, "head_dim": config.head_size}
    sizes |= {"num_attention_heads": config.heads, "num_key_value_heads": config.heads, "vocab_size": 3}
    theirs = getattr(transformers, f"{kind}Config")(
        **sizes, intermediate_size=encoder.layers[0].feedforward.mlp.up_proj.out_features, rms_norm_eps=1e-6, **more
    )
    theirs._attn_implementation = "eager"
    model = getattr(transformers, f"{kind}Model")(theirs).double()
    weights = {"norm.weight": encoder.norm.weight, "embed_tokens.weight": model.embed_tokens.weight}
    for n, layer in enumerate(encoder.layers):
        weights |= {f"layers.{n}.self_attn.{p}_proj.weight": getattr(layer, f"{p}_proj").weight for p in "qkvo"}
        mlp = layer.feedforward.mlp
        weights |= {f"layers.{n}.mlp.{p}_proj.weight": getattr(mlp, f"{p}_proj").weight for p in PARTS}
        weights[f"layers.{n}.input_layernorm.weight"] = layer.norm.weight
        weights[f"layers.{n}.post_attention_layernorm.weight"] = layer.feedforward.norm.weight
    model.load_state_dict(weights, strict=True)
    return model


@pytest.mark.parametrize("window", [None, 4])
def test_is_a_llama_and_with_a_window_a_mistral(window: int | None) -> None:
    config = TransformerConfig(hidden_size=12, layers=2, heads=2, window=window or 50)
    encoder = build(config, 12)
    x: Tensor = values(11, 3, 12)
    with torch.no_grad():
        theirs = in_their_form(encoder, config, window)(inputs_embeds=x.transpose(0, 1)).last_hidden_state
        ours, _ = encoder(x, encoder.init_state(3))
    torch.testing.assert_close(ours, theirs.transpose(0, 1), rtol=1e-6, atol=1e-6)
