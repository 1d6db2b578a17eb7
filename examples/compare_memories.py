"""The same small LSTM with and without a memory, side by side.

python examples/compare_memories.py
"""

import tempfile
from pathlib import Path
from typing import Any

import spanlm

MEMORIES: dict[str, dict[str, Any]] = {
    "no memory": {"kind": "none"},
    "attention to the last 5 states": {"kind": "key_value", "roles": 1, "window": 5},
}


def main() -> None:
    """Train each two epochs on the same text with the same seed, and print test perplexities."""
    tree: dict[str, Any] = spanlm.find_preset("demo").config.to_tree()
    tree["training"]["epochs"], tree["model"]["encoder"]["hidden_size"] = 2, 99  # the preset: 12 epochs, 300 units
    with tempfile.TemporaryDirectory() as folder:
        for name, memory in MEMORIES.items():
            tree["model"]["memory"] = memory
            config, run = spanlm.RunConfig.from_tree(tree), Path(folder, memory["kind"])
            spanlm.train(config, spanlm.load_corpus(config.data), run)
            perplexity = spanlm.load(run).evaluate(split="test").perplexity
            print(f"{name}: test perplexity {perplexity:.0f}", flush=True)
    print("Perplexity 100: on average as unsure as between 100 equally likely words. Lower is better.")


if __name__ == "__main__":
    main()
