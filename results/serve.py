"""How fast `spanlm serve` answers, in a real browser: `python -m results.serve RUN [RUN …]`; speed.jsonl.

From a key in a text of 200 words to the painted surprisals, at its end and in its middle; 20 visitors who type at once;
the bytes of the page; which limits are kept. Needs playwright and Debian's chromium; nothing else should run meanwhile.
"""

import argparse
import http.client
import json
import random
import re
import shutil
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import Page, sync_playwright

import spanlm
from results.record import save
from spanlm.data.config import DataConfig
from spanlm.data.vocabulary import EOS

WORDS, KEYS, VISITORS, VISITOR_KEYS = 200, 40, 20, 25
BETWEEN_KEYS = 0.1, 0.3
"""Seconds that a visitor waits after an answer before the next key."""

SMALL = 10_000_000
"""Parameters; a run with more has a limit of its own."""

LIMITS = {"small_ms": 150, "large_ms": 400, "visitors_ms": 1000, "page_bytes": 100_000}
"""Of 95 % of the keys in a run that is small or large, of 95 % of the answers to many visitors, of the whole page."""

# from the event of a key to the frame after the bars of surprisal were drawn anew
WATCH = """() => {
  window.painted = [];
  let began = 0;
  document.getElementById("text").addEventListener("input", () => { began = performance.now(); }, true);
  new MutationObserver(() => requestAnimationFrame(() => setTimeout(() => {
    window.painted.push(performance.now() - began);
  }))).observe(document.querySelector("#reader .bars"), { childList: true });
}"""


def _words() -> list[str]:
    tokens = spanlm.load_corpus(DataConfig(corpus="demo"))
    part = tokens.splits["test"].ids
    return [word for word in map(tokens.vocabulary.word, part[: 2 * WORDS].tolist()) if word != EOS][:WORDS]


@contextmanager
def _serving(runs: list[str]) -> Iterator[str]:
    command = [sys.executable, "-m", "spanlm", "serve", *runs, "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        found = re.search(r"http://\S+", process.stdout.readline())
        assert found is not None, "spanlm serve said no address"
        yield found[0]
        process.terminate()


def _summary(milliseconds: list[float]) -> dict[str, float]:
    ordered = sorted(milliseconds)
    return {
        "count": len(ordered),
        "median_ms": round(statistics.median(ordered), 1),
        "p95_ms": round(ordered[int(0.95 * (len(ordered) - 1) + 0.5)], 1),
        "most_ms": round(ordered[-1], 1),
    }


def _typed(page: Page, place: int, words: list[str]) -> dict[str, float]:
    """Type letters at a place, one after the other, each when the last is painted."""
    area = page.locator("#text")
    area.fill(" ".join(words))
    page.locator("#status", has_text=f"{len(words)} words").wait_for()
    page.wait_for_timeout(500)
    page.evaluate("place => document.getElementById('text').setSelectionRange(place, place)", place)
    page.evaluate("window.painted.length = 0")
    for key in range(KEYS):
        page.keyboard.type(" the name of it"[key % 15])
        while page.evaluate("window.painted.length") <= key:
            page.wait_for_timeout(5)
    times: list[float] = page.evaluate("window.painted")
    return _summary(times[2:])


def _in_browser(address: str, models: list[dict[str, Any]], words: list[str]) -> tuple[list[Any], dict[str, int]]:
    measured = []
    with sync_playwright() as playwright:
        path = shutil.which("chromium") or "/usr/bin/chromium"
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1300, "height": 900})
        for model in models:
            page.goto("about:blank")
            page.goto(f"{address}#run={model['id']}")
            page.locator("#reader .w").first.wait_for()
            page.evaluate(WATCH)
            text = " ".join(words)
            measured.append(
                {
                    "row": Path(model["name"]).name,
                    "description": model["description"],
                    "parameters": model["parameters"],
                    "words": len(words),
                    "key_to_paint_at_the_end": _typed(page, len(text), words),
                    "key_to_paint_in_the_middle": _typed(page, text.index(" ", len(text) // 2), words),
                }
            )
        names = page.evaluate("performance.getEntriesByType('resource').map(({ name }) => name)")
        files = [address, *sorted({name for name in names if "/static/" in name})]
        sizes = {urlsplit(name).path: len(page.request.get(name).body()) for name in files}
        browser.close()
    return measured, sizes


def _visitor(address: str, model: dict[str, Any], words: list[str], seed: int, times: list[float]) -> None:
    """Type a text of one's own: each key sends it all, as the page does."""
    draw = random.Random(seed)
    own = draw.sample(words, len(words))
    connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=60)
    text = " ".join(own[:-10])
    for letter in " ".join(["", *own[-10:]])[:VISITOR_KEYS]:
        text += letter
        time.sleep(draw.uniform(*BETWEEN_KEYS))
        began = time.perf_counter()
        body = json.dumps({"run": model["id"], "text": text, "state": model["state"]})
        connection.request("POST", "/api/read", body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        answer.read()
        assert answer.status == 200, answer.status
        times.append(1000 * (time.perf_counter() - began))


def _visitors(address: str, model: dict[str, Any], words: list[str]) -> dict[str, float]:
    times: list[float] = []
    threads = [threading.Thread(target=_visitor, args=(address, model, words, seed, times)) for seed in range(VISITORS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(times) == VISITORS * VISITOR_KEYS, "a visitor was not answered"
    return _summary(times)


def _verdicts(runs: list[Any], visitors: dict[str, float], page_bytes: int) -> list[dict[str, Any]]:
    """Hold what was measured against the limits."""
    measures = [
        (f"{run['row']}, {place.replace('_', ' ')}, p95 ms", run[place]["p95_ms"], "large_ms" if large else "small_ms")
        for run in runs
        for large in [run["parameters"] > SMALL]
        for place in ("key_to_paint_at_the_end", "key_to_paint_in_the_middle")
    ]
    measures.append((f"{VISITORS} visitors, p95 ms", visitors["p95_ms"], "visitors_ms"))
    measures.append(("page, bytes", page_bytes, "page_bytes"))
    return [
        {"row": row, "measured": measured, "limit": LIMITS[name], "kept": measured < LIMITS[name]}
        for row, measured, name in measures
    ]


def main() -> None:
    """Measure, and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="+", metavar="RUN")
    options = parser.parse_args()
    words = _words()
    with _serving(options.runs) as address:
        connection = http.client.HTTPConnection(urlsplit(address).netloc)
        connection.request("GET", "/api/models")
        models = json.loads(connection.getresponse().read())["models"]
        runs, sizes = _in_browser(address, models, words)
        visitors = _visitors(address, models[0], words)
    verdicts = _verdicts(runs, visitors, sum(sizes.values()))
    for row in verdicts:
        said = "kept" if row["kept"] else "not kept"
        sys.stdout.write(f"{row['row']}: {row['measured']:,} (limit {row['limit']:,}): {said}\n")
    visiting = {"visitors": VISITORS, "words": len(words), "run": runs[0]["row"], **visitors}
    tables = {
        "serve": {row.pop("row"): row for row in verdicts},
        "serve/runs": {row.pop("row"): row for row in runs},
        "serve/visitors": {"visitors": {"visitors": visiting}},
        "serve/page": {"page": {"page_bytes": sum(sizes.values()), "files": sizes}},
    }
    what = "spanlm serve in Debian's Chromium: from a key to painted surprisals, many visitors, bytes of the page"
    for table, rows in tables.items():
        save("speed", table, what, rows)


if __name__ == "__main__":
    main()
