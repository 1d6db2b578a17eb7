from __future__ import annotations

import json
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import pytest

from spanlm.cli.presets import LISTING, listing_text
from spanlm.papers import NGRAM_PRESETS, PRESETS
from tests.cli.conftest import Cli, flat


def test_the_list_has_a_line_for_every_preset_and_fits_80_columns(cli: Cli) -> None:
    out = cli("presets").done
    lines = {line.split()[0]: line.split() for line in out.splitlines() if line.strip()}
    for name, preset in PRESETS.items():
        assert preset.reported.test_ppl is None or f"{preset.reported.test_ppl}" in lines[name]
    assert lines["daniluk2017/kvp-w5"] == ["daniluk2017/kvp-w5", "834", "25.58M", "48.68M", "74.2", "75.8"]
    assert lines["li2020/mos-ps-at-snb-ptb"][-3:] == ["52.37", "50.18", "43.87"]
    assert "\nDaniluk et al. 2017: Wikipedia, 7,500 articles, 77,000 words\n" in out
    assert max(map(len, out.splitlines())) <= 80


def test_a_filter_lists_what_has_it_in_its_name(cli: Cli) -> None:
    names = [row["name"] for row in json.loads(cli("presets", "Daniluk2017", "--json").done)]
    assert names == [name for name in (*PRESETS, *NGRAM_PRESETS) if name.startswith("daniluk2017/")]
    assert "kvp-w15" in cli("presets", "kvp-w").done and "rnn" not in cli("presets", "kvp-w").done


def test_one_preset_is_shown_with_its_row_its_numbers_and_its_remark(cli: Cli) -> None:
    """kvp-w1 is one, though other names begin with it."""
    assert cli("presets", "kvp-w1").done.startswith("preset      daniluk2017/kvp-w1\n")
    out = flat(cli("presets", "daniluk2017/kvp-w5").done)
    for part in ("Figure 2a, Key-Value-Predict, window 5", "25,578,774", "valid 74.2, test 75.8", "not the 23.9M"):
        assert part in out
    assert max(map(len, cli("presets", "li2020/mos-ps-at-snb-ptb").done.splitlines())) <= 80


def test_the_listing_is_what_the_presets_give() -> None:
    found = files("spanlm").joinpath(LISTING).read_text(encoding="utf-8")
    assert found == listing_text(), "`python -m spanlm.cli.presets` writes it anew"


@pytest.mark.parametrize("arguments", [[], ["kvp-w5"]], ids=str)
def test_the_list_and_one_preset_are_shown_without_torch(arguments: list[str]) -> None:
    code = (
        f"import sys; from spanlm.cli.main import main; main({['presets', *arguments]}); print('torch' in sys.modules)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240, check=True).stdout
    assert out.splitlines()[-1] == "False"


def test_the_list_as_a_file_has_the_rows_of_the_terminal(cli: Cli) -> None:
    shown = cli("presets", "daniluk2017/kvp", "--out", "t.tex").done
    cli("presets", "daniluk2017/kvp", "--out", "t.md").done  # noqa: B018 (checks)
    rows = [line.split() for line in shown.splitlines() if line.startswith("  daniluk2017")]
    for name, mark in (("t.tex", "&"), ("t.md", "|")):
        lines = [line.rstrip("\\|").replace(mark, " ").split() for line in Path(name).read_text().splitlines()]
        assert rows and all(row in lines for row in rows)
