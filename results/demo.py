"""The numbers of README and docs on the demo: `python -m results.demo FOLDER` writes demo.jsonl.

FOLDER has runs/demo as `spanlm train`, given nothing else, leaves it.
"""

import os
import sys
from pathlib import Path

from results.record import asked, done, save
from results.records import write
from spanlm.data.corpora import load_corpus
from spanlm.store.provenance import starts

EXAMPLES = Path(__file__).parents[1] / "examples"
STIMULI = "".join((EXAMPLES / "stimuli.csv").read_text(encoding="utf-8").splitlines(keepends=True)[:2])


def main() -> None:
    """Ask, and write."""
    os.chdir(Path(sys.argv[1]))
    for name in ("dev.nbest", "dev.refs"):
        Path(name).write_bytes((EXAMPLES / name).read_bytes())
    runs, splits = ("runs/demo", "runs/demo/lstm"), ("valid", "test")
    what = "spanlm train, given nothing else; the text differs between versions of Python, and so do these numbers"
    evaluations = {f"{run} {split}": asked("evaluate", run, "--split", split) for run in runs for split in splits}
    commands = {
        "score": done("score", "runs/demo", "-", given="the name is bound\n").splitlines(),
        "stimuli": done("score", "runs/demo", "-", "--input", "csv", "--text", "sentence", given=STIMULI).splitlines(),
        "without_memory": asked("evaluate", "runs/demo", "--split", "valid", "--attention", "none"),
        "by_lag": done("attend", "runs/demo", "--by-lag", "--split", "valid").splitlines(),
        "rescore": asked("rescore", "runs/demo", "--nbest", "dev.nbest", "--refs", "dev.refs", "--tune"),
        "compare": asked("compare", "runs/demo/lstm", "runs/demo"),
        "worth": asked("compare", "runs/demo", "--attention", "none", "--cache", "500", "--tune-cache"),
        "caches": asked("compare", "runs/demo/lstm", "runs/demo", "--cache", "500", "--tune-cache"),
        "context": asked("context", "runs/demo", "--split", "valid"),
    }
    write("demo", ({"table": "training", "row": run, "starts": starts(Path(run))} for run in runs))
    length = {"train": len(load_corpus("demo", splits=["train"]).splits["train"])}
    save("demo", "evaluations", what, {name: length | {"evaluation": one} for name, one in evaluations.items()})
    save("demo", "commands", what, {name: {name: one} for name, one in commands.items()})


if __name__ == "__main__":
    main()
