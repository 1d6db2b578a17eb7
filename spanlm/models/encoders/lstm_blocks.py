"""An LSTM in the blocks that newer encoders have (`blocks.py`): one layer in each, its output added to the stream.

Not of a paper: beside the plain LSTM it tells what the blocks are worth, beside the Transformer what attention is.
"""

from __future__ import annotations

from typing import Literal

from spanlm.models.encoders.blocks import BlockConfig, BlockStack
from spanlm.models.encoders.stacks import FORGET_BIAS, LSTMConfig
from spanlm.models.interfaces import Init
from spanlm.options import FINITE, option, options


@options()
class LSTMBlocksConfig(BlockConfig):
    """Blocks around an LSTM: norms, residual branches and feed-forward networks, as a Transformer has them."""

    kind: Literal["lstm_blocks"] = "lstm_blocks"
    forget_bias: float | None = option(FORGET_BIAS, default=1.0, limit=FINITE)

    @property
    def description(self) -> str:
        return f"LSTM in blocks {self.sizes}"

    def build(self, input_size: int, init: Init) -> BlockStack:
        layer = LSTMConfig(hidden_size=self.hidden_size, forget_bias=self.forget_bias)
        return BlockStack(self, input_size, init, lambda: layer.build(layer.hidden_size, init))
