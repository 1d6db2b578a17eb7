"""`spanlm export RUN --to hf --out DIR`."""

from __future__ import annotations

from pathlib import Path

from spanlm.cli.options import Parser, load_run
from spanlm.cli.render import out

_DESCRIPTION = """
Write a trained model in the format of another library. hf: a folder with model and tokenizer for Hugging Face's
transformers.

  spanlm export runs/demo --to hf --out demo-hf

The folder holds no model code: in Python `import spanlm.interop.hf` registers the classes, or trust_remote_code=True
does. Needs the extra hf.
"""


def run(arguments: list[str]) -> None:
    parser = Parser("export", _DESCRIPTION)
    parser.add_argument("run", type=Path, metavar="RUN", help="folder of a run")
    parser.add_argument("--to", choices=("hf",), default="hf", help="the library (default: hf)")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="a new folder")
    options = parser.parse_intermixed_args(arguments)
    model = load_run(options.run, "cpu")
    from spanlm.interop.hf import export

    export(model, options.out)
    out(f"{options.out}: {model.title()}, for transformers; its words are in tokenizer.json")
