import pytest

import spanlm
from tests.goldens.small import make_text, shrunk


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> spanlm.TrainedModel:
    folder = tmp_path_factory.mktemp("interop")
    config = shrunk("daniluk2017/kvp-w5", str(make_text(folder / "text")), epochs=1)
    spanlm.train(config, spanlm.load_corpus(config.data), folder / "run")
    found = spanlm.load(folder / "run", "cpu")
    assert isinstance(found, spanlm.TrainedModel)
    return found
