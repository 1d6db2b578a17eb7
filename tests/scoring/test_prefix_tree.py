"""The tree of texts gives what each text alone gives, whatever the model remembers."""

import random

import pytest
import torch

from spanlm.scoring.prefix_tree import Ids, read_texts
from tests.scoring import reference

V, EOS = len(reference.WORDS), reference.VOCABULARY.eos_id


def variants(seed: int = 1) -> list[Ids]:
    """Texts that begin alike, some of them equal, one empty."""
    generator = random.Random(seed)
    texts: list[Ids] = [(EOS,)]
    for _ in range(6):
        words = generator.choices(range(1, V), k=generator.randint(1, 9))
        for _ in range(5):
            changed = list(words)
            changed[generator.randrange(len(changed))] = generator.randrange(1, V)
            texts.append((*changed[: generator.randint(0, len(changed))], EOS))
    return texts


@pytest.mark.parametrize("memory", ["none", *reference.LOOKING])
@pytest.mark.parametrize("predict_first", [True, False])
@pytest.mark.parametrize("streams", [3, 512])
@torch.no_grad()
def test_as_each_text_alone(memory: str, predict_first: bool, streams: int) -> None:
    model, texts = reference.small_model(memory), [(*[EOS] * predict_first, *text) for text in variants()]
    found, read = read_texts(model, dict.fromkeys(texts, 1), streams=streams)
    model.eval()
    assert found.keys() == set(texts)
    for text, values in found.items():
        ids = torch.tensor(text)[:, None]
        alone = model.log_prob(ids[:-1], ids[1:], model.init_state(1))[0][:, 0].tolist() if len(ids) > 1 else []
        assert values.tolist() == pytest.approx(alone, abs=1e-10)
    if streams > 3:
        assert read < 0.7 * sum(map(len, texts))


def test_words_in_common_are_read_once() -> None:
    texts = [(EOS, 1, 2, 3, EOS), (EOS, 1, 2, 4, EOS)]
    found, read = read_texts(reference.small_model("none"), dict.fromkeys(texts, 1))
    assert found[texts[0]].tolist() != found[texts[1]].tolist()
    assert read == 6  # <eos>, 1, 2 by each of both ways on, 3, 4; of the ends nothing is read


def test_no_texts() -> None:
    assert read_texts(reference.small_model("none"), {}) == ({}, 0)
