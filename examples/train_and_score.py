"""Train a small model on Python's own documentation, then see which words of a sentence surprise it.

python examples/train_and_score.py
"""

import tempfile
from pathlib import Path
from typing import Any

import spanlm

SENTENCE = "the name is bound to the object ."


def main() -> None:
    """Train two epochs and print the surprisal of every word."""
    tree: dict[str, Any] = spanlm.find_preset("demo").config.to_tree()
    tree["training"]["epochs"], tree["model"]["encoder"]["hidden_size"] = 2, 99  # the preset: 12 epochs, 300 units
    config = spanlm.RunConfig.from_tree(tree)
    with tempfile.TemporaryDirectory() as folder:
        print("training …", flush=True)
        spanlm.train(config, spanlm.load_corpus(config.data), Path(folder, "run"))
        model = spanlm.load(Path(folder, "run"))
    print(f"{'word':<10}{'bits':>6}  one # a bit; 10 bits: as surprising as 1 word in 1,024")
    for word in model.score(SENTENCE):
        print(f"{word.word:<10}{word.surprisal:6.1f}  {'#' * round(word.surprisal)}")


if __name__ == "__main__":
    main()
