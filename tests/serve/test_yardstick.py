"""A model of Hugging Face is read with, by written word, and asked for nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
from starlette.testclient import TestClient

from spanlm.serve.app import make_app
from spanlm.serve.served import Runs
from spanlm.serve.work import Work
from tests.interop.test_yardstick import bytes_tokenizer, saved


def test_a_yardstick_is_read_with(tmp_path: Path, work: Work) -> None:
    runs = Runs()
    served = runs.add(f"hf:{saved(tmp_path, bytes_tokenizer())}", "cpu")
    client = TestClient(make_app(runs, work), base_url="http://localhost")
    (described,) = client.get("/api/models").json()["models"]
    assert (described["attends"], described["states"], described["diagram"], described["caches"]) == (
        None,
        ["line", "carry", "document"],
        None,
        False,
    )
    text = "the cat sat\n\non the mat"
    for state in described["states"]:
        words = client.post("/api/read", json={"text": text, "state": state}).json()["items"][0]["words"]
        assert [word["text"] for word in words] == text.split()
        expected = [score.surprisal for score in served.model.score(text, state=state)]
        assert [word["surprisal"] for word in words] == pytest.approx(expected)
    for name, field in (("next", "prompt"), ("generate", "prompt"), ("attend", "text")):
        answer = client.post(f"/api/{name}", json={field: text})
        assert answer.status_code == 400 and "model of Hugging Face" in answer.json()["error"]
    answer = client.post("/api/read", json={"text": text, "cache": True})
    assert answer.status_code == 400 and answer.json()["error"].startswith("cache=true: ")
