import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch

from spanlm.errors import InputError
from spanlm.models.language_model import LanguageModel
from spanlm.scoring.generation import Continuations, sample
from spanlm.scoring.options import GenerationOptions
from tests.cases import rest_slow
from tests.scoring import reference

VOCABULARY = reference.VOCABULARY
UNK = VOCABULARY.unk_id
PROBABILITIES = [0.4, 0.25, 0.2, 0.1, 0.04, 0.01]


@pytest.fixture(scope="module")
def model() -> LanguageModel:
    return reference.small_model()


def continued(
    model: LanguageModel, prompt: list[str], line_by_line: bool = False, predict_first: bool = True
) -> Continuations:
    return Continuations(model, VOCABULARY, prompt, line_by_line, predict_first)


def generate(model: LanguageModel, prompt: list[str], options: GenerationOptions, **how: bool) -> list[str]:
    """The words that are drawn, without what they were drawn from."""
    return [drawn.word for drawn in continued(model, prompt, **how).draw(options)]


def words(model: LanguageModel, prompt: str = "the", **options: Any) -> list[str]:
    return generate(model, prompt.split(), GenerationOptions(**options))


def draws(count: int, temperature: float = 1.0, top_k: Any = None, top_p: Any = None, barred: Any = ()) -> Counter[int]:
    log_p, generator = torch.tensor(PROBABILITIES).log(), torch.Generator().manual_seed(7)
    return Counter(sample(log_p, temperature, top_k, top_p, list(barred), generator) for _ in range(count))


def chi_square(found: Counter[int], probabilities: list[float]) -> float:
    count = sum(found.values())
    return sum((found[i] - count * p) ** 2 / (count * p) for i, p in enumerate(probabilities) if p)


@pytest.mark.parametrize("temperature", rest_slow([2.0, 1.0, 0.5]))
def test_frequencies_are_the_probabilities(temperature: float) -> None:
    sharpened = np.array(PROBABILITIES) ** (1 / temperature)
    expected = (sharpened / sharpened.sum()).tolist()
    # 99.9 % of such statistics with 5 degrees of freedom are below 20.5; the seed is fixed
    assert chi_square(draws(4000, temperature=temperature), expected) < 20.5
    wrong = PROBABILITIES if temperature != 1 else [1 / 6] * 6
    assert chi_square(draws(4000, temperature=temperature), wrong) > 100


@pytest.mark.parametrize(
    ("options", "support"),
    [
        ({"barred": [0], "top_k": 2}, {1, 2}),
        ({"barred": [0], "top_p": 0.5}, {1, 2}),
        ({"top_p": 0.84}, {0, 1, 2}),
        ({"top_p": 0.86}, {0, 1, 2, 3}),
        ({"top_p": 1.0}, {0, 1, 2, 3, 4, 5}),
        ({"top_p": 1e-9}, {0}),
        ({"top_k": 99}, {0, 1, 2, 3, 4, 5}),
        ({"top_k": 2, "top_p": 0.6}, {0}),  # of the two words' 0.65
    ],
    ids=str,
)
def test_supports_are_exact(options: dict[str, Any], support: set[int]) -> None:
    found = draws(1500, **options)
    assert set(found) == support
    kept = [p if i in support else 0.0 for i, p in enumerate(PROBABILITIES)]
    # 99.9 % with 5 degrees of freedom
    assert chi_square(found, [p / sum(kept) for p in kept]) < 20.5


@pytest.mark.parametrize("temperature", [0, 1])
@pytest.mark.parametrize("log_p", [[math.nan] * 2, [-1.0, math.nan], [-math.inf] * 2, [0.0, -math.inf]], ids=str)
def test_no_word_is_drawn_without_probabilities(temperature: float, log_p: list[float]) -> None:
    with pytest.raises(InputError, match=r"^the model gives no word a probability"):
        sample(torch.tensor(log_p), temperature, None, None, [0], torch.Generator())


@pytest.mark.parametrize(("u", "word"), [(0.0, 3), (0.5, 2), (1 - 2**-53, 1)])
@pytest.mark.parametrize("top_k", [None, 5])
def test_words_without_a_probability_are_never_drawn(
    u: float, word: int, top_k: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the ends of what can be drawn, too."""
    monkeypatch.setattr(torch, "rand", lambda *_, **how: torch.tensor(u, dtype=how["dtype"]))
    log_p = torch.tensor([0.0, 0.25, 0.5, 0.25, 0.0]).log()
    assert sample(log_p, 1.0, top_k, None, [], torch.Generator()) == word


def test_the_greedy_way_is_the_model_read_one_word_at_a_time(model: LanguageModel) -> None:
    found = words(model, "the cat zebra", length=12, temperature=0)
    ids = [VOCABULARY.eos_id, *VOCABULARY.encode(["the", "cat", "zebra"])]
    for word in found:
        row = reference.distributions(model, ids)[-1]
        row[UNK] = -np.inf
        assert VOCABULARY.id(word) == int(row.argmax())
        ids.append(VOCABULARY.id(word))
    assert found == words(model, "the cat zebra", length=12, temperature=0, seed=99)


LINES = ["cat", "dog", "<eos>", "the", "zebra"]


@pytest.mark.parametrize("prompt", rest_slow([LINES, [], ["the", "zebra"], [*LINES, "<eos>"]], always=2), ids=str)
@pytest.mark.parametrize("how", ["carried", "line by line", "not opened"])
def test_lines_begin_as_the_model_knows_them(model: LanguageModel, prompt: list[str], how: str) -> None:
    """Against a model read from the start for every word: what it is given is what it was trained on."""
    options: dict[str, Any] = {"line_by_line": how != "carried", "predict_first": how != "not opened"}
    alone = prompt[len(prompt) - [*prompt[::-1], "<eos>"].index("<eos>") :]
    if how == "not opened" and not alone:
        with pytest.raises(InputError, match=r"^prompt='': the model does not predict .* give that word"):
            generate(model, prompt, GenerationOptions(seed=4), **options)
        return
    found = generate(model, prompt, GenerationOptions(length=30, seed=4), **options)
    assert "<eos>" in found and (how != "not opened" or found.index("<eos>") == len(found) - 1 < 29)
    draw = torch.Generator().manual_seed(4)
    before = {"carried": ["<eos>", *prompt], "line by line": ["<eos>", *alone], "not opened": alone}[how]
    for word in found:
        log_p = torch.from_numpy(reference.distributions(model, VOCABULARY.encode(before))[-1])
        assert VOCABULARY.id(word) == sample(log_p, 1.0, None, None, [UNK], draw)
        before = ["<eos>"] if word == "<eos>" and how != "carried" else [*before, word]


def test_a_seed_gives_its_words_whatever_the_global_generator(model: LanguageModel) -> None:
    torch.manual_seed(5)
    before, found = torch.get_rng_state(), words(model, length=20, seed=3)
    assert torch.equal(torch.get_rng_state(), before)
    assert found == words(model, length=20, seed=3) != words(model, length=20, seed=4)
    assert found[:7] == words(model, length=7, seed=3)


def test_unk_is_drawn_only_if_asked_for(model: LanguageModel) -> None:
    loud = reference.small_model()
    with torch.no_grad():
        loud.head.bias[UNK] += 100  # type: ignore[index, operator]
    assert words(loud, length=5, unk=True) == ["<unk>"] * 5
    for options in ({}, {"temperature": 0}, {"top_k": 11}, {"top_p": 0.99}):
        assert "<unk>" not in words(loud, length=40, **options)


@pytest.mark.parametrize("memory", reference.LOOKING)
@pytest.mark.parametrize("how", rest_slow([{}, {"line_by_line": True}, {"predict_first": False}]), ids=str)
def test_samples_are_the_texts_of_the_seeds_after_it(memory: str, how: dict[str, bool]) -> None:
    """Each as long as it would be alone, also where lines end at other steps and what is remembered grows."""
    model = reference.small_model(memory)
    options, prompt = {"length": 40, "top_p": 0.95}, ["the", "cat"]
    found = list(continued(model, prompt, **how).samples(GenerationOptions(seed=5, **options), 4))
    assert found == [generate(model, prompt, GenerationOptions(seed=5 + n, **options), **how) for n in range(4)]
    assert len({tuple(words) for words in found}) == 4
    assert (len({len(words) for words in found}) > 1) == ("predict_first" in how)


def test_of_many_samples_not_all_are_drawn_at_a_time(model: LanguageModel) -> None:
    """So that their number is not bounded by the memory: the first are there before the others are drawn."""
    few, endless = (continued(model, ["the"]).samples(GenerationOptions(length=3), n) for n in (40, 10**9))
    found = list(few)
    assert found == [generate(model, ["the"], GenerationOptions(length=3, seed=1 + n)) for n in range(40)]
    assert next(endless) == found[0]


def test_samples_that_would_be_one_are_refused(model: LanguageModel) -> None:
    with pytest.raises(InputError, match=r"samples=2.*temperature=0"):
        continued(model, ["the"]).samples(GenerationOptions(temperature=0), 2)
    with pytest.raises(InputError, match="samples=0"):
        continued(model, ["the"]).samples(GenerationOptions(), 0)
