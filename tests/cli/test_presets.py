import json
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import pytest

from spanlm.cli.presets import LISTING, listing_text
from spanlm.papers.registry import NGRAM_PRESETS, PRESETS
from tests.cli.conftest import Cli


def test_a_filter_lists_what_has_it_in_its_name(cli: Cli) -> None:
    names = [row["name"] for row in json.loads(cli("presets", "Daniluk2017", "--json").done)]
    assert names == [name for name in (*PRESETS, *NGRAM_PRESETS) if name.startswith("daniluk2017/")]
    assert max(map(len, cli("presets").done.splitlines())) <= 80
    assert cli("presets", "kvp-w1").done.startswith("preset      daniluk2017/kvp-w1\n"), (
        "it is one, and kvp-w15 another"
    )
    assert "kvp-w15" in cli("presets", "kvp-w").done and "rnn" not in cli("presets", "kvp-w").done


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
