"""`spanlm data CORPUS`."""

from __future__ import annotations

import argparse
import shlex
import time
from pathlib import Path
from typing import Any

from spanlm.cli.parser import field_values
from spanlm.cli.render import Progress, eta, out, table
from spanlm.data.wikipedia import WikipediaConfig, build_corpus, cut_sources
from spanlm.data.wikipedia.shards import Progress as Step
from spanlm.errors import Interrupted
from spanlm.store.signals import StopRequest, stop_request

_KEPT = "; sources that were read to their ends are kept. Go on with the same command"


def run(options: argparse.Namespace) -> None:
    config = field_values(options, WikipediaConfig)
    began = time.monotonic()
    try:
        with stop_request() as stop, Progress() as progress:
            report = _Report(stop, progress)
            if options.cut_only:
                cut_sources(config, report)
                return
            summary = build_corpus(config, report)
    except Interrupted as end:
        raise Interrupted(str(end).partition(";")[0] + _KEPT, end.signal_number) from None
    _show(summary, config.out, time.monotonic() - began)


class _Report:
    """Shows progress; raises Interrupted when the user stops the build."""

    def __init__(self, stop: StopRequest, progress: Progress) -> None:
        self._stop, self._progress = stop, progress
        self._began, self._phase, self._reuse_noted = time.monotonic(), "", False

    def __call__(self, step: Step) -> None:
        self._stop.raise_if_set()
        if step.reused and not self._reuse_noted:
            self._reuse_noted = True
            out("going on: sources that were read before are not read again")
        if step.phase != self._phase:
            self._phase, self._began = step.phase, time.monotonic()
        spent, share = max(time.monotonic() - self._began, 1e-9), step.done / max(step.total, 1)
        left = eta(spent / share - spent) if share else ""
        details = f"{step.articles:,} articles", f"{step.words:,} words"
        self._progress.show(step.phase, step.done, step.total, left, details, f"{share:4.0%}")


def _show(summary: dict[str, Any], folder: Path, seconds: float) -> None:
    vocabulary = summary["vocabulary"]
    rows = [
        (
            split,
            f"{counts['articles']:,} articles, {counts['sentences']:,} sentences, {counts['words']:,} words "
            f"(<unk> {counts['unknown'] / counts['words']:.2%}), {counts['tokens']:,} tokens",
        )
        for split, counts in summary["splits"].items()
    ]
    words = sum(counts["words"] for counts in summary["splits"].values())
    if (selection := summary.get("selection")) is not None:
        shares = selection["categories"].items()
        counts = ", ".join(f"{name} {count['articles']:,} of {count['wanted']:,}" for name, count in shares)
        paper = "the paper's: {articles:,} articles of {words:,} words, {source}".format(**selection["paper"])
        rows.append((f"as in {summary['options']['like']}", f"{counts} articles ({paper})"))
    rows += [
        (
            "vocabulary",
            f"{vocabulary['size']:,} with <unk> and <eos>: {vocabulary['coverage']:.2%} of the training part's words, "
            f"which has {vocabulary['types']:,} different ones",
        ),
        ("sentences", f"{summary['words_per_sentence']:.1f} words on average"),
        ("tokens", "words, an <eos> for every sentence, and one for the blank line after every article"),
        ("left out", _counted(summary["left_out_words"], "words")),
        ("skipped", _counted(summary["skipped"], "pages")),
        ("built", f"{seconds:,.0f} s, {words / seconds:,.0f} words/s"),
        ("folder", str(folder)),
    ]
    table(rows)
    every = " --data.min_count 1" if vocabulary["coverage"] == 1 else ""  # the text has no <unk>
    out("to train on it:")
    out(f"  spanlm train daniluk2017/kvp-w5 --corpus {shlex.quote(str(folder))}{every}")


def _counted(counts: dict[str, int], unit: str) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in counts.items()) + f" {unit}" if counts else "nothing"
