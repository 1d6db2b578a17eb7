"""An LSTM in the blocks that newer encoders have (`blocks.py`), one layer in each: x ← x + dropout(LSTM_n(norm(x))).

Not of a paper: beside an LSTM of as many layers it tells what the blocks are worth, beside the other encoders what
their layers are. Its output is added as it is: the other layers end in a projection, which starts small.
"""

from __future__ import annotations

from typing import Literal

from spanlm.models.encoders.blocks import BlockConfig, BlockStack
from spanlm.models.encoders.stacks import FORGET_BIAS, LSTMConfig
from spanlm.models.interfaces import Init
from spanlm.options import WEIGHT, option, options


@options()
class LSTMBlocksConfig(BlockConfig):
    """Blocks around an LSTM: norms, residual branches and feed-forward networks, as a Transformer has them."""

    kind: Literal["lstm_blocks"] = "lstm_blocks"
    forget_bias: float | None = option(FORGET_BIAS, default=1.0, limit=WEIGHT)

    @property
    def description(self) -> str:
        return f"LSTM in blocks {self.sizes}"

    def build(self, input_size: int, init: Init) -> BlockStack:
        layer = LSTMConfig(hidden_size=self.hidden_size, forget_bias=self.forget_bias)
        return BlockStack(self, input_size, init, lambda: layer.build(layer.hidden_size, init))
