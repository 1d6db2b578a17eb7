"""How much an operation holds at once."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Largest(TorchDispatchMode):
    """Notes how many elements the largest tensor has that anything inside makes, forwards or backwards.

    A view counts what it shows of its memory, and no more than that: words repeated for every window hold nothing.
    """

    elements = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        for x in tree_leaves(result):
            if isinstance(x, Tensor):
                held = x.untyped_storage().nbytes() // x.element_size()
                self.elements = max(self.elements, min(x.numel(), held))
        return result
