"""`spanlm evaluate --cache`: what is printed is what the library says, plain and cached side by side."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import spanlm
from spanlm.evaluation.cache import CacheConfig
from spanlm.evaluation.perplexity import evaluate
from spanlm.runs.ensemble import load_ensemble
from spanlm.runs.trained_model import TrainedModel
from tests.cli.conftest import Cli

GIVEN = ("--cache", "20", "--cache-theta", "0.5", "--cache-lambda", "0.2")
CACHE = CacheConfig(window=20, theta=0.5, lambda_=0.2)


@pytest.mark.parametrize("state", ["auto", "carry", "document", "line"])
def test_json_is_the_evaluation_with_and_without(cli: Cli, tiny_run: Path, state: str) -> None:
    result = json.loads(cli("evaluate", tiny_run, *GIVEN, "--state", state, "--json").done)
    model = spanlm.load(tiny_run)
    cached, plain = (model.evaluate(state=state, cache=cache) for cache in (CACHE, None))  # type: ignore[arg-type]
    assert result["perplexity"] == pytest.approx(cached.perplexity)
    assert result["without_cache"]["perplexity"] == pytest.approx(plain.perplexity)
    assert cached.perplexity != pytest.approx(plain.perplexity, rel=1e-3)
    over = " over the lines before" if state == "line" else ""
    assert result["protocol"] == f"{plain.protocol}; neural cache of the last 20 words, θ 0.5, λ 0.2{over}"
    assert result["without_cache"]["protocol"] == plain.protocol
    assert result["cache"] == {"window": 20, "theta": 0.5, "lambda": 0.2, "tuned_on": None}
    assert "tuning" not in result


def test_the_options_may_come_before_the_run(cli: Cli, tiny_run: Path) -> None:
    result = json.loads(cli("evaluate", "--cache", "20", *GIVEN[2:], "--json", tiny_run).done)
    assert result["cache"]["window"] == 20


def test_tuning_is_on_valid_and_test_is_read_once(cli: Cli, tiny_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    evaluated: list[str] = []
    monkeypatch.setattr(
        "spanlm.runs.trained_model.evaluate", lambda *a, **k: (evaluated.append(a[2]), evaluate(*a, **k))[1]
    )
    result = json.loads(cli("evaluate", tiny_run, "--cache", "20", "--tune-cache", "--json").done)
    tuning = spanlm.load(tiny_run).tune_cache([20])
    assert evaluated == ["test"]
    assert result["cache"] == tuning.best.to_json() | {"tuned_on": "tiny valid"}
    assert result["tuning"]["perplexity"] == pytest.approx(tuning.perplexity)
    assert len(result["tuning"]["grid"]) == len(tuning.grid)
    assert result["split"] == "test" and "(tuned on tiny valid)" in result["protocol"]
    expected = spanlm.load(tiny_run).evaluate(cache=tuning.best)
    assert result["perplexity"] == pytest.approx(expected.perplexity)


def test_tuning_is_told(cli: Cli, tiny_run: Path) -> None:
    grid = ("--cache-theta", "0.1", "--cache-lambda", "0.01", "0.02")
    out = cli("evaluate", tiny_run, "--cache", "20", "--tune-cache", *grid).done
    flat = " ".join(out.split())
    tuning = spanlm.load(tiny_run).tune_cache([20], thetas=(0.1,), lambdas=(0.01, 0.02))
    best = tuning.best
    assert (
        f"tuned on tiny valid: θ 0.1, λ {best.lambda_:g} of 2 pairs; {tuning.perplexity:.2f} there, "
        f"{tuning.plain:.2f} without" in flat
    )
    assert tuning.notes == ["cache.lambda=0.02 is the largest that was tried: the best may lie beyond."]
    assert "--cache-lambda=0.02 is the largest that was tried: the best may lie beyond." in flat
    assert "optimistic" not in flat
    assert "optimistic" in cli("evaluate", tiny_run, "--cache", "20", "--tune-cache", "--split", "valid").done


def test_a_window_too_long_for_the_evaluated_text_is_refused_before_tuning(
    cli: Cli, tiny_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "test.txt").write_text("the cat\n")
    (tmp_path / "c" / "valid.txt").write_text("the cat\n" * 50)
    monkeypatch.setattr(TrainedModel, "tune_cache", lambda *a, **k: pytest.fail("minutes were spent"))
    cli("evaluate", tiny_run, "--corpus", "c", "--cache", "20", "--tune-cache").refused("--cache=20", "at most 3")


def test_a_window_too_long_for_the_text_to_tune_on_is_refused(cli: Cli, tiny_run: Path, tmp_path: Path) -> None:
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "test.txt").write_text("the cat\n" * 50)
    (tmp_path / "c" / "valid.txt").write_text("the cat\n")
    cli("evaluate", tiny_run, "--corpus", "c", "--cache", "20", "--tune-cache").refused(
        "--cache=20: must be at most 3: c valid has no more tokens; take a smaller --cache"
    )


def test_another_corpus_is_tuned_on_its_own_valid_part(cli: Cli, tiny_run: Path, tmp_path: Path) -> None:
    (tmp_path / "c").mkdir()
    for split in ("valid", "test"):
        (tmp_path / "c" / f"{split}.txt").write_text("the cat\n" * 20)
    result = json.loads(cli("evaluate", tiny_run, "--corpus", "c", "--cache", "9", "--tune-cache", "--json").done)
    assert result["cache"]["tuned_on"] == "c valid"
    assert result["cache"]["lambda"] > 0
    assert result["perplexity"] < result["without_cache"]["perplexity"]


def test_several_runs_have_one_cache(cli: Cli, tiny_run: Path, tmp_path: Path) -> None:
    other = shutil.copytree(tiny_run, tmp_path / "other")
    result = json.loads(cli("evaluate", tiny_run, other, *GIVEN, "--json").done)
    both = load_ensemble([tiny_run, other])
    assert result["perplexity"] == pytest.approx(both.evaluate(cache=CACHE).perplexity)
    assert result["runs"] == [str(tiny_run), str(other)]
    assert result["without_cache"]["perplexity"] == pytest.approx(both.evaluate().perplexity)
    assert "2 runs as one" in cli("evaluate", tiny_run, other, *GIVEN).done
    cli("evaluate", tiny_run, other, *GIVEN, "--tune-weights").refused("--tune-weights and --cache do not go together")


def test_several_runs_are_also_shown_alone_and_without_the_cache(cli: Cli, tiny_run: Path, lstm_run: Path) -> None:
    right = load_ensemble([tiny_run, lstm_run]).evaluate_members()
    found = json.loads(cli("evaluate", tiny_run, lstm_run, *GIVEN, "--json").done)["without_cache"]
    assert [member["run"] for member in found["members"]] == [str(tiny_run), str(lstm_run)]
    assert [member["nll"] for member in found["members"]] == [pytest.approx(member.nll) for member in right.members]
    assert found["oracle_bound"] == right.to_json()["oracle_bound"]
    lines = cli("evaluate", tiny_run, lstm_run, *GIVEN).done.splitlines()
    start = lines.index("without the cache: each run alone, all as one, and the oracle bound")
    for line, value in zip(lines[start + 2 :], (*right.members, right.ensemble), strict=False):
        assert f" {value.perplexity:.2f} " in line
    assert lines[-1].startswith("oracle bound") and f" {right.oracle_bound.bound:.2f} " in lines[-1]


def test_saltons_count_is_shown_with_and_without(cli: Cli, tiny_run: Path) -> None:
    flat = " ".join(cli("evaluate", tiny_run, *GIVEN, "--state", "line").done.split())
    model = spanlm.load(tiny_run)
    plain, cached = model.evaluate(state="line"), model.evaluate(state="line", cache=CACHE)
    assert plain.salton2017 is not None and cached.salton2017 is not None
    assert f"without cache {plain.perplexity:.2f}, Salton's count {plain.salton2017.perplexity:.2f} " in flat
    assert f"Salton's count {cached.salton2017.perplexity:.2f} = exp(NLL of " in flat


def test_a_perplexity_without_end_is_null_in_json(cli: Cli, tiny_run: Path) -> None:
    """A cache that is all of the mixture gives most words nothing at all."""
    given = ("--cache", "3", "--cache-theta", "0.5", "--cache-lambda", "1")
    text = cli("evaluate", tiny_run, *given, "--json").done
    assert "Infinity" not in text and json.loads(text)["perplexity"] is None
    why = "λ 1 leaves a word that is not in the cache no probability"
    assert why in json.loads(text)["notes"] and why in cli("evaluate", tiny_run, *given).done
    assert why not in cli("evaluate", tiny_run, *given[:-1], "0.9").done
