"""How long commands take in two versions of spanlm: `python -m results.verbs FOLDER OLDER`; speed.jsonl.

OLDER is a checkout of the older version. FOLDER has two runs that it made, how well they predict does not matter: by
`spanlm train salton2017/lstm-ptb --corpus CORPUS --epochs 1 --out FOLDER/lstm-ptb`, of a text with 10,000 words, and by
`spanlm train --no-tour --epochs 2 --out FOLDER/demo`. Each command is a process of its own, the versions take turns,
and nothing else should run meanwhile. The texts are lines of Penn Treebank's valid part and questions of the Children's
Book Test, where $SPANLM_DATA has them.
"""

import gzip
import os
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path

from results.record import save

LINES, QUESTIONS, ROUNDS = 1000, 40, 9
HERE = Path(__file__).parents[1]
FAST = ("--precision", "bf16")
NEW = "score, bf16", "cloze, bf16", "rescore, bf16"
"""What the older version cannot do."""


def _texts(folder: Path) -> None:
    """Write the lines as a text and as hypotheses, and the questions."""
    data = Path(os.environ["SPANLM_DATA"])
    lines = [line.strip() for line in (data / "ptb" / "valid.txt").read_text(encoding="utf-8").splitlines()[:LINES]]
    (folder / "lines.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    lists = (f"{n // 10} ||| {line} ||| AM= 1.0 ||| 1.0\n" for n, line in enumerate(lines))
    (folder / "lists.nbest").write_text("".join(lists), encoding="utf-8")
    with gzip.open(next((data / "cbt" / "questions").glob("*_NE_test_*.gz")), "rt", encoding="utf-8") as file:
        questions = "".join(islice(file, QUESTIONS * 22))
    (folder / "questions.txt").write_text(questions, encoding="utf-8")


def _commands(runs: Path) -> dict[str, list[str]]:
    large, small = str(runs / "lstm-ptb"), str(runs / "demo")
    read = ["evaluate", large, "--corpus", "lines.txt", "--state", "line"]
    found: dict[str, list[str]] = {
        "presets": ["presets"],
        "train, one epoch of the demo": ["train", "--epochs", "1", "--no-tour"],
        "evaluate": read,
        "evaluate, bf16": [*read, *FAST],
        "score": ["score", large, "lines.txt", "--out", "rows.tsv"],
        "cloze": ["cloze", large, "questions.txt"],
        "rescore": ["rescore", large, "--nbest", "lists.nbest", "--weights", "lstm-ptb=1"],
        "generate, 200 words": ["generate", large, "--length", "200"],
        "generate, the demo's model, 1,000 words": ["generate", small, "--length", "1000"],
    }
    return found | {name: [*found[name.removesuffix(", bf16")], *FAST] for name in NEW}


def _seconds(command: list[str], version: Path, folder: Path) -> float:
    begun = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "spanlm", *command],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(version)},
        stdout=subprocess.DEVNULL,
        check=True,
    )
    return time.perf_counter() - begun


def main() -> None:
    """Run them in turn, and write."""
    runs, older = (Path(word).resolve() for word in sys.argv[1:])
    found: dict[str, dict[str, dict[str, float]]] = {}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        _texts(folder)
        for name, command in _commands(runs).items():
            versions = {"after": HERE} if name in NEW else {"before": older, "after": HERE}
            for path in versions.values():
                _seconds(command, path, folder)  # the first is slower: files are read and compiled
            taken: dict[str, list[float]] = {version: [] for version in versions}
            for _ in range(ROUNDS):
                for version, path in versions.items():
                    taken[version].append(_seconds(command, path, folder))
            found[name] = {
                version: {"seconds": statistics.median(times), "from": min(times), "to": max(times)}
                for version, times in taken.items()
            }
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=older, stdout=subprocess.PIPE, text=True, check=True)
    what = (
        f"seconds of whole commands, medians of {ROUNDS} with the least and the most; {LINES:,} lines, {QUESTIONS} "
        "questions, a model of 2×650 units with 10,000 words, and the demo's"
    )
    older_commit = {"older": commit.stdout.strip()}
    save("speed", "verbs", what, {name: older_commit | times for name, times in found.items()})


if __name__ == "__main__":
    main()
