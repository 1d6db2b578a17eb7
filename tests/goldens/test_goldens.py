"""What spanlm 0.1.0 computed, printed and wrote, which what is installed must compute, print and write, too.

What trainings compute (numbers, undisturbed, old_runs) was made anew, on another processor, when masks were drawn in
another way; without dropout it differs from 0.1.0's by a relative 3e-7 at most.

On the processor, and with the torch, that made a golden: bit for bit. On others sums are added up in another order:
to a relative 1e-5 then, and digests of weights are only compared among themselves. Made anew, one or all, by
`python -m tests.goldens.make [NAME …]`; what may be missing is listed with the reason in `REMOVED`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cases import rest_slow
from tests.goldens import make
from tests.goldens.make import Json, golden, processor, working
from tests.goldens.small import killed

MADE_ON = golden("processor")

_READINGS = (
    "span_offset|grid|before_stream|biases|gate_range|kept|own_segment_gradients|penalised|annealed_temperature|"
    "annealing_epochs|negative_reward|rewarded|reward_teaches|reward_gate|reward_constant"
)
REMOVED: dict[str, str] = {
    rf".*config[./]model\.memory\.({_READINGS})": "readings of Li et al. (2020) that no preset has; refused by name",
    r".*config[./]model\.head\.buffer": "another such reading",
    r".*config[./]model\.memory\.(reward|reward_\w+|\w+_temperature)": "in the groups `gate` and `reward`",
}
"""What is in a golden and may be missing (a regular expression of its path) -> why."""

FIRST_OF_A_KIND = (
    *("demo", "daniluk2017/rnn", "daniluk2017/fofe-hornn-3", "daniluk2017/gated-hornn-3", "daniluk2017/rm-w5"),
    *("daniluk2017/5-gram", "salton2017/combined-wt2", "salton2017/single-stream-ptb", "press2017/small-wt-pr"),
    *("press2017/large-bd-wt", "grave2017/lstm-ptb", "merity2017/pointer-ptb", "merity2017/zoneout-wt2"),
    *("li2020/mos-ps-at-snb-ptb", "li2020/words-ptb"),
)
"""Every encoder, memory, head, optimiser, schedule and batching; the other presets are slow tests."""


@pytest.fixture(scope="module", autouse=True)
def room(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("goldens")
    with working(folder):
        yield folder


def removed(path: str) -> bool:
    return any(re.fullmatch(pattern, path) for pattern in REMOVED)


def differences(made: Json, expected: Json, same: bool, path: str = "") -> list[str]:
    """Return where what was made differs from a golden; it may have more keys. `same`: bit for bit."""
    if removed(path):
        return []
    if isinstance(expected, dict) and isinstance(made, dict):
        lost = [name for name in expected if name not in made and not removed(f"{path}/{name}")]
        found = [f"{path}: missing {lost}"] if lost else []
        return sum((differences(made[x], expected[x], same, f"{path}/{x}") for x in expected if x in made), found)
    if isinstance(expected, list) and isinstance(made, list):
        found = [] if len(expected) == len(made) else [f"{path}: {len(made)} entries, not {len(expected)}"]
        pairs = enumerate(zip(made, expected, strict=False))
        return sum((differences(one, other, same, f"{path}/{number}") for number, (one, other) in pairs), found)
    if path.endswith("sha256") and not same:
        return []
    near = not same and isinstance(made, float) and isinstance(expected, int | float)
    if made == expected or (near and math.isclose(made, expected, rel_tol=1e-5, abs_tol=1e-6)):
        return []
    return [f"{path}: {made!r}, not {expected!r}"]


def check(made: Json, expected: Json, name: str) -> None:
    """Compare with a golden, or a part of it."""
    same = processor() == MADE_ON[name]
    found = differences(made, expected, same)
    how = "bit for bit" if same else f"to a relative 1e-5 (made on {MADE_ON[name]}, this is {processor()})"
    assert not found, f"compared {how}:\n" + "\n".join(found[:20])


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in FIRST_OF_A_KIND else pytest.mark.slow) for name in golden("numbers")],
)
def test_a_preset_computes_the_same(name: str) -> None:
    made = make.preset_numbers(name, Path("made") / name)
    check(made, golden("numbers")[name], "numbers")
    states = golden("states")
    assert make.shapes(Path("made") / name) == next(x["state"] for x in states if name in x["presets"])


@pytest.mark.parametrize(
    "name",
    rest_slow(
        ["evaluations", "scores", "generated", "presets", "old_records", "clozes", "attentions", "old_runs"], always=5
    ),
)
def test_a_verb_does_the_same_with_runs_and_records_of_010(name: str) -> None:
    check(make.MAKERS[name](), golden(name), name)


@pytest.mark.slow
def test_what_other_verbs_write_has_the_same_keys() -> None:
    check(make.written_json(), golden("written_json"), "written_json")


def test_no_name_is_lost() -> None:
    check(sets(make.surface()), sets(golden("surface")), "surface")


def sets(tree: Json) -> Json:
    """Lists as keys: they may grow."""
    if isinstance(tree, dict):
        return {name: sets(value) for name, value in tree.items()}
    return dict.fromkeys(tree, "") if isinstance(tree, list) and all(isinstance(x, str) for x in tree) else tree


@pytest.mark.slow
@pytest.mark.parametrize("kind", make.KINDS)
def test_killed_and_resumed_it_ends_as_undisturbed(kind: str, room: Path) -> None:
    config, folder = make.kind_config(kind), Path("killed") / make.KINDS[kind]
    whole = make.trained(config, Path("whole") / make.KINDS[kind])
    folder.parent.mkdir(parents=True, exist_ok=True)
    killed(config, folder, lines=40)
    make.trained(config, folder)
    assert make.rows(folder) == make.rows(whole)
    assert make.weights_sha256(folder) == make.weights_sha256(whole)
    check({"sha256": make.weights_sha256(folder)}, golden("undisturbed")[kind], "undisturbed")
