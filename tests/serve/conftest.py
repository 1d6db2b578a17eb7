from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="needs the extra serve")
from starlette.testclient import TestClient

import spanlm
from spanlm.data.config import DataConfig
from spanlm.runs.ngram import train_ngram
from spanlm.scoring.ngram.config import NgramConfig, NgramRunConfig
from spanlm.serve.app import make_app
from spanlm.serve.served import Runs
from spanlm.serve.work import Work

Ask = Callable[..., Any]
"""POSTs fields to an endpoint, and returns what comes back as JSON."""


def runs_of(*names: object) -> Runs:
    served = Runs()
    for name in names:
        served.add(str(name), "cpu")
    return served


def client_of(runs: Runs, work: Work) -> TestClient:
    return TestClient(make_app(runs, work), base_url="http://127.0.0.1:8000")


@pytest.fixture(scope="session")
def folders(
    tiny_run: Path, lstm_run: Path, span_run: Path, sentence_run: Path, unopened_run: Path, arpa: Path
) -> Mapping[str, Path]:
    runs = (tiny_run, lstm_run, span_run, sentence_run, unopened_run, arpa)
    return {str(number): run for number, run in enumerate(runs, 1)}


@pytest.fixture(scope="session")
def arpa(tmp_path_factory: pytest.TempPathFactory, tiny_corpus: Path) -> Path:
    config = NgramRunConfig(
        data=DataConfig(corpus=str(tiny_corpus)), ngram=NgramConfig(order=2, fallback=(0.5, 1, 1.5))
    )
    folder = tmp_path_factory.mktemp("runs") / "bigram"
    train_ngram(config, spanlm.load_corpus(config.data), folder)
    return folder / "model.arpa"


@pytest.fixture(scope="session")
def runs(folders: Mapping[str, Path]) -> Runs:
    return runs_of(*folders.values())


@pytest.fixture(scope="session")
def work() -> Work:
    return Work(2, 64)


@pytest.fixture(scope="session")
def client(runs: Runs, work: Work) -> TestClient:
    return client_of(runs, work)


@pytest.fixture(scope="session")
def ask(client: TestClient) -> Ask:

    def asked(name: str, **fields: Any) -> Any:
        answer = client.post(f"/api/{name}", json=fields)
        assert answer.status_code == 200, answer.text
        return answer.json()

    return asked
