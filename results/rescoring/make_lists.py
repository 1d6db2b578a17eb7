"""n-best lists made of a corpus's sentences: `python make_lists.py FOLDER` writes valid and test lists and references.

Of each of 200 sentences of 5 to 30 words, 50 hypotheses: one to four words (now and then none) exchanged for one with
the same first letter and length, left out, or added; the score is −1.5 for each change, and noise (σ 2.5).
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from pathlib import Path

LISTS, SIZE = 200, 50


def main(folder: Path) -> None:
    """Write `valid.nbest`, `valid.refs`, `test.nbest` and `test.refs` here, in Moses' format."""
    draw = random.Random(3)
    counts = Counter((folder / "train.txt").read_text(encoding="utf-8").split())
    words = [word for word, _ in counts.most_common(9000) if word not in ("<unk>", "N")]
    alike: dict[tuple[str, int], list[str]] = {}
    for word in words:
        alike.setdefault((word[0], len(word)), []).append(word)

    def changed(sentence: list[str]) -> tuple[list[str], int]:
        found, changes = list(sentence), draw.randint(0 if draw.random() < 0.1 else 1, 4)
        for _ in range(changes):
            kind, place = draw.random(), draw.randrange(len(found))
            if kind < 0.7:
                found[place] = draw.choice(alike.get((found[place][0], len(found[place])), [found[place]]))
            elif kind < 0.85 and len(found) > 1:
                del found[place]
            else:
                found.insert(place, draw.choice(words[:200]))
        return found, changes

    for split in ("valid", "test"):
        lines = [line.split() for line in (folder / f"{split}.txt").read_text(encoding="utf-8").splitlines()]
        chosen = draw.sample([line for line in lines if 5 <= len(line) <= 30], LISTS)
        rows = []
        for number, sentence in enumerate(chosen):
            scores: dict[str, float] = {}
            for _ in range(3 * SIZE):
                words_now, changes = changed(sentence)
                scores.setdefault(" ".join(words_now), -1.5 * changes + draw.gauss(0, 2.5))
                if len(scores) == SIZE:
                    break
            best_first = sorted(scores.items(), key=lambda item: -item[1])
            rows += [f"{number} ||| {text} ||| AM= {score:.3f} ||| {score:.3f}\n" for text, score in best_first]
        Path(f"{split}.nbest").write_text("".join(rows), encoding="utf-8")
        Path(f"{split}.refs").write_text("".join(" ".join(line) + "\n" for line in chosen), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
