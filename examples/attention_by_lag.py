"""How many words back does a key-value-predict memory look? Saved as a figure.

python examples/attention_by_lag.py [FIGURE]
"""

import sys
import tempfile
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import matplotlib

import spanlm

matplotlib.use("Agg")
from matplotlib import pyplot


def main(figure: str = "attention_by_lag.png") -> None:
    """Train two epochs, read one page of Python's documentation, and average the weights of each lag."""
    tree: dict[str, Any] = spanlm.find_preset("demo").config.to_tree()
    tree["training"]["epochs"], tree["model"]["encoder"]["hidden_size"] = 2, 99  # the preset: 12 epochs, 300 units
    config = spanlm.RunConfig.from_tree(tree)
    with tempfile.TemporaryDirectory() as folder:
        print("training …", flush=True)
        spanlm.train(config, spanlm.load_corpus(config.data), Path(folder, "run"))
        model = spanlm.load(Path(folder, "run"))
        assert isinstance(model, spanlm.TrainedModel)  # and not an n-gram model, which looks at nothing
        look = model.attend(topics["import"])
    means = look.settled.mean(axis=0)  # the first words of a line have fewer to look at
    for lag, weight in zip(look.lags, means, strict=True):
        print(f"{lag} word{'s' if lag > 1 else ' '} back: {weight:.0%} of the attention")
    pyplot.bar(list(look.lags), means)
    pyplot.xlabel("words back")
    pyplot.ylabel("mean attention")
    pyplot.savefig(figure)
    print(f"figure: {figure}")


if __name__ == "__main__":
    main(*sys.argv[1:])
