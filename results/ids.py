"""A large text becomes ids within little memory: `python -m results.ids SOURCE [--bytes N]`; speed.jsonl.

The text is that of SOURCE, repeated to N bytes (without a number 10 GB) in a folder of its own that is deleted
afterwards, as the cache of its ids is. It is loaded twice: the second time the ids are there. It takes N bytes of the
disk for the text and about as many for the ids.
"""

import argparse
import hashlib
import os
import resource
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import spanlm
from results.record import save
from spanlm.data.config import DataConfig


def _repeat(source: Path, target: Path, size: int) -> int:
    """Write whole copies of a text until there are `size` bytes; return how many there are."""
    with target.open("wb") as file:
        while file.tell() < size:
            with source.open("rb") as text:
                while piece := text.read(1 << 20):
                    file.write(piece)
        return file.tell()


def _seconds(folder: Path) -> tuple[float, spanlm.Corpus]:
    began = time.perf_counter()
    corpus = spanlm.load_corpus(DataConfig(corpus=str(folder)))
    return round(time.perf_counter() - began, 1), corpus


def main() -> None:
    """Measure, and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("--bytes", type=int, default=10**10)
    options = parser.parse_args()
    with TemporaryDirectory() as folder:
        os.environ["SPANLM_CACHE"] = str(Path(folder, "cache"))
        corpus = Path(folder, "corpus")
        corpus.mkdir()
        size = _repeat(options.source, corpus / "train.txt", options.bytes)
        for split in ("valid", "test"):
            (corpus / f"{split}.txt").write_text("the name is bound .\n", encoding="utf-8")
        first, tokens = _seconds(corpus)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        second, _ = _seconds(corpus)
        with options.source.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        row = {
            "source": {"bytes": options.source.stat().st_size, "sha256": digest},
            "bytes": size,
            "tokens": len(tokens.splits["train"]),
            "types": len(tokens.vocabulary),
            "first_load_seconds": first,
            "second_load_seconds": second,
            "peak_resident_megabytes": peak,
            "with_torch": "torch" in sys.modules,
        }
    what = f"load_corpus of a folder whose train.txt is {options.source.name}, repeated; twice in one process"
    save("speed", "ids", what, {"ids": row})


if __name__ == "__main__":
    main()
