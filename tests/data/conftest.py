from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

MakeCorpus = Callable[..., Path]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("SPANLM_CACHE", str(folder))
    return folder


@pytest.fixture
def make_corpus(tmp_path: Path) -> MakeCorpus:
    """Writes a corpus folder; text that is not given is a short line."""

    def make(texts: Mapping[str, str | bytes] | None = None, name: str = "corpus") -> Path:
        folder = tmp_path / name
        folder.mkdir(parents=True, exist_ok=True)
        for split in ("train", "valid", "test"):
            text = (texts or {}).get(split, "the cat sat\n")
            (folder / f"{split}.txt").write_bytes(text if isinstance(text, bytes) else text.encode())
        return folder

    return make
