"""`spanlm export RUN --to hf --out DIR`."""

from __future__ import annotations

import argparse

from spanlm.cli.options import load_run
from spanlm.cli.render import out


def run(options: argparse.Namespace) -> None:
    model = load_run(options.run, "cpu")
    from spanlm.interop.hf import export

    export(model, options.out)
    out(f"{options.out}: {model.title()}, for transformers; its words are in tokenizer.json")
