"""The numbers of the server are those of the library and the command line; what it says of models and remembers."""

import json
import math
import os
import shutil
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import torch
from starlette.testclient import TestClient
from torch import Tensor

import spanlm
from spanlm.analysis.pages import EXAMPLES, page_content
from spanlm.cli.main import main
from spanlm.data.config import CORPORA, DEMO, DataConfig
from spanlm.models.encoders import ENCODERS, LSTMConfig
from spanlm.models.heads import HEADS
from spanlm.models.interfaces import LMState, NextWordModel, Readout
from spanlm.models.language_model import LanguageModel, ModelConfig
from spanlm.models.memories import MEMORIES
from spanlm.papers.registry import PRESETS
from spanlm.runs.model import TrainedModel
from spanlm.scoring.stream import evaluating
from spanlm.serve.fields import NEURAL_CACHE, REQUESTS
from spanlm.serve.remembering import Memo, Remembering
from spanlm.serve.served import Runs, diagram
from spanlm.serve.work import Work
from spanlm.store.plain import finite
from spanlm.store.run_folder import epoch_rows
from tests.cases import rest_slow
from tests.models.small import HIDDEN, SMALL_MEMORIES, language_model, models
from tests.serve.conftest import Ask, client_of, runs_of

TEXT = "the cat sat on the mat . zebra\n\nthe dog ran to naïve 猫 object .\nname is bound to the object . 😀 <unk> the"
LONG = " ".join(["the cat sat on mat . name is bound to the object ."] * 8)
ATTENDS = ("1", "3", "5")


CACHE = {"--cache": NEURAL_CACHE.window, "--cache-theta": NEURAL_CACHE.theta, "--cache-lambda": NEURAL_CACHE.lambda_}
STATES = [("tokens", "line"), ("words", "line"), ("words", "document"), ("words", "carry")]


@pytest.mark.parametrize("cache", [False, True])
@pytest.mark.parametrize(("rows", "state"), STATES)
@pytest.mark.parametrize("run", rest_slow("123456"))
def test_score_is_the_command_line_s(
    client: TestClient, folders: Mapping[str, Path], run: str, rows: str, state: str, cache: bool, tmp_path: Path
) -> None:
    more = list(map(str, chain.from_iterable(CACHE.items()))) if cache else []
    file, out = tmp_path / "text.txt", tmp_path / "scores.csv"
    file.write_text(TEXT + "\n", encoding="utf-8")
    score = ["score", str(folders[run]), str(file), "--rows", rows, "--state", state, "--out", str(out), *more]
    if state != "line" and main(score) == 2:
        pytest.skip("a model of lines alone")
    assert main([*score, "--format", "csv"]) == 0
    asked = {"run": run, "text": TEXT, "rows": rows, "state": state, "cache": cache}
    assert client.post("/api/score", json=asked, headers={"accept": "text/csv"}).text == out.read_text("utf-8")
    assert main([*score, "--format", "jsonl"]) == 0
    lines = [json.loads(line) for line in out.read_text("utf-8").splitlines()]
    assert client.post("/api/score", json=asked).json() == {"rows": lines}


@pytest.mark.parametrize("run", ATTENDS)
def test_attend_is_the_command_line_s(
    client: TestClient, folders: Mapping[str, Path], run: str, tmp_path: Path
) -> None:
    out, typed = tmp_path / "look.csv", "The CAT sat on the mat ."
    assert main(["attend", str(folders[run]), "--text", TEXT, "--out", str(out)]) == 0
    asked = client.post("/api/attend", json={"run": run, "text": TEXT}, headers={"accept": "text/csv"})
    assert asked.text == out.read_text("utf-8")
    # and what is read has its record, with the words as they were typed
    model = spanlm.load(folders[run], "cpu")
    assert isinstance(model, TrainedModel)
    record = model.attend_spans(typed) if model.has_spans else model.attend(typed)
    (item,) = client.post("/api/read", json={"run": run, "text": typed}).json()["items"]
    written = item["record"].pop("written", item["record"]["tokens"])
    assert [token for token in written if token != "<eos>"] == typed.split()
    assert item["record"] == json.loads(json.dumps(finite(page_content(record))))


@pytest.mark.parametrize("run", ["1", "2", "3", "4", "6"])
def test_generated_words_are_the_command_line_s(client: TestClient, folders: Mapping[str, Path], run: str) -> None:
    how: dict[str, Any] = {"length": 12, "temperature": 0.8, "top_k": 9, "top_p": 0.9, "seed": 7}
    words = spanlm.load(folders[run], "cpu").generate("the cat", **how)
    assert [event["word"] for event in _words(client, run=run, prompt="the cat", **how)] == words


def _words(client: TestClient, **fields: Any) -> list[dict[str, Any]]:
    events = client.post("/api/generate", json=fields).text.split("\n\n")
    assert events[-2:] == ["event: done\ndata: {}", ""]
    return [json.loads(event.partition("\ndata: ")[2]) for event in events[:-2] if event.startswith("event: word")]


@pytest.mark.parametrize("cache", [None, NEURAL_CACHE], ids=["plain", "cache"])
@pytest.mark.parametrize("state", ["line", "carry", "document"])
@pytest.mark.parametrize("run", ["1", "2", "3", "4", "5", "6"])
def test_read_has_the_numbers_of_score_by_word(
    client: TestClient, folders: Mapping[str, Path], run: str, state: Any, cache: Any
) -> None:
    model = spanlm.load(folders[run], "cpu")
    answer = client.post("/api/read", json={"run": run, "text": TEXT, "state": state, "cache": cache is not None})
    if run == "5" and state != "line":  # it knows nothing of what stands before a line
        assert answer.status_code == 400 and "Take line" in answer.json()["error"]
        return
    read = answer.json()
    words = [word for item in read["items"] for word in item["words"]]
    scores = list(chain.from_iterable(model.score_items(TEXT.split("\n"), state=state, cache=cache)))
    assert [word["text"] for word in words] == [score.word for score in scores] == TEXT.split()
    assert [TEXT[word["start"] : word["end"]] for word in words] == TEXT.split()
    for name in ("surprisal", "entropy"):
        numbers = [math.nan if word[name] is None else word[name] for word in words]
        assert numbers == pytest.approx([getattr(score, name) for score in scores], rel=1e-4, abs=1e-4, nan_ok=True)
    assert [word["rank"] for word in words] == [score.rank for score in scores]
    assert [word["unknown"] for word in words] == [score.oov or "<unk>" in score.tokens.split() for score in scores]
    rows = list(model.score(TEXT, state=state, eos=True, cache=cache))
    for numbers, among in ((read, rows), (read["known"], [row for row in rows if not row.oov and row.word != "<unk>"])):
        predicted = [row.surprisal for row in among if not math.isnan(row.surprisal)]
        mean = math.fsum(predicted) / len(predicted)
        assert (numbers["bits"], numbers["perplexity"]) == pytest.approx((mean, 2**mean), rel=1e-4)


@pytest.mark.parametrize("how", ["uniform", "none", "window=2"])
def test_a_lesion_is_the_library_s(ask: Ask, folders: Mapping[str, Path], how: str) -> None:
    model = spanlm.load(folders["1"], "cpu")
    assert isinstance(model, TrainedModel)
    rows = [score.surprisal for score in model.with_attention(how).score(LONG)]
    assert [row["surprisal"] for row in ask("score", text=LONG, attention=how)["rows"]] == rows
    assert rows != [score.surprisal for score in model.score(LONG)]


def test_what_was_read_before_changes_no_bit(folders: Mapping[str, Path], work: Work) -> None:
    """Typed letter by letter, from a warm memory, and asked once of a new server: the same."""
    for run in ("1", "5"):
        warm, state = client_of(runs_of(folders[run]), work), "line" if run == "5" else "carry"
        for end in range(len(LONG) - 60, len(LONG), 20):
            warm.post("/api/read", json={"text": LONG[:end], "state": state})
            warm.post("/api/next", json={"prompt": LONG[:end]})
        for name, field in (
            ("read", {"text": LONG, "state": state, "cache": True}),
            ("next", {"prompt": LONG, "temperatures": [0.5]}),
        ):
            servers = warm, client_of(runs_of(folders[run]), work)
            known, fresh = (server.post(f"/api/{name}", json=field).json() for server in servers)
            assert known == fresh


@pytest.mark.parametrize("run", ["1", "2", "3"])
def test_a_cache_says_where_it_had_read_a_word(ask: Ask, run: str) -> None:
    plain, read = (ask("read", run=run, text=TEXT, state="carry", cache=cache)["items"][0] for cache in (False, True))
    record, cache = read["record"], read["record"]["cache"]
    came = ["<unk>" if token in record["unknown"] else token for token in record["tokens"][1:]]
    for t, (chance, gain, places) in enumerate(zip(cache["chance"], cache["gain"], cache["places"], strict=True)):
        assert sorted(place for place, _ in places) == [i for i in range(t) if came[i] == came[t]]
        assert (chance or 0) == pytest.approx(sum(share for _, share in places), rel=1e-2)
        assert plain["record"]["bits"][t] - record["bits"][t] == pytest.approx(gain, abs=3e-4)
        assert gain >= math.log2(1 - NEURAL_CACHE.lambda_) - 1e-4
    assert cache["chance"][0] is None and "cache" not in plain["record"]
    assert record["expected"] == plain["record"]["expected"] and record["weights"] == plain["record"]["weights"]
    assert [word["tokens"] for word in read["words"]] == [word["tokens"] for word in plain["words"]]
    assert {(word["entropy"], word["rank"]) for word in read["words"]} == {(None, None)}


@pytest.mark.slow
def test_threads_give_what_one_after_the_other_gives(runs: Runs) -> None:
    client = client_of(runs, Work(32, 64))
    asked = [
        (name, {"run": run, field: f"{LONG[: 40 * number]} the", **more})
        for number in range(1, 9)
        for run in ("1", "2", "3", "6")
        for name, field, more in (
            ("read", "text", {"state": "carry"}),
            ("score", "text", {}),
            ("next", "prompt", {"count": 5}),
            ("generate", "prompt", {"length": 8, "seed": number}),
        )
    ]

    def answer(one: tuple[str, dict[str, Any]]) -> Any:
        found = client.post(f"/api/{one[0]}", json=one[1])
        assert found.status_code == 200, found.text
        return found.text

    serial = [answer(one) for one in asked]
    with ThreadPoolExecutor(32) as pool:
        assert list(pool.map(answer, asked)) == serial


def test_the_next_word_is_the_model_s_distribution(client: TestClient, ask: Ask, folders: Mapping[str, Path]) -> None:
    model, temperatures = spanlm.load(folders["1"], "cpu"), [0.5, 1.0, 3.0]
    drawn = next(model.draw("the cat", length=1))
    log_p = dict(zip(model.vocabulary.words, drawn.log_p.double().tolist(), strict=True))
    found = ask("next", prompt="the cat", count=4, temperatures=temperatures)
    listed = {each["word"]: each["log_probability"] for each in found["candidates"]}
    unk = log_p.pop("<unk>")
    assert listed == dict(sorted(log_p.items(), key=lambda one: -one[1])[:4])
    others = [value for word, value in log_p.items() if word not in listed]
    assert found["unk"] == pytest.approx(math.exp(unk))
    assert found["rest"] == pytest.approx(math.fsum(map(math.exp, others)))
    tails = [math.log(math.fsum(math.exp(value / each) for value in others)) for each in temperatures]
    assert found["tails"] == pytest.approx(tails)
    assert ask("next", prompt="the", count=1000, temperatures=[1.0])["tails"] == [None]
    first = next(iter(_words(client, prompt="the cat", length=2, temperature=0)))
    assert first["candidates"] == ask("next", prompt="the cat", count=20)["candidates"]
    assert first["word"] == first["candidates"][0]["word"]


def test_models_are_described(client: TestClient, folders: Mapping[str, Path]) -> None:
    answer = client.get("/api/models").json()
    assert (answer["ready"], answer["progress"], answer["version"]) == (True, None, spanlm.__version__)
    kvp, lstm, spans, sentences, unopened, bigram = answer["models"]
    assert [model["id"] for model in answer["models"]] == list(folders)
    assert [model["attends"] for model in answer["models"]] == ["words", None, "spans", "words", "words", None]
    assert (kvp["window"], kvp["nearest_lag"], kvp["state"]) == (3, 1, "document")
    assert kvp["states"] == ["line", "carry", "document"]
    assert kvp["lesions"] == ["uniform", "none", "window=1"] and not lstm["lesions"]
    assert (spans["gates"], kvp["gates"], unopened["states"], sentences["state"]) == (True, False, ["line"], "line")
    assert lstm["diagram"]["memory"] is None and kvp["diagram"]["memory"]["shape"] == "12 → 4"
    assert bigram["diagram"] is None and bigram["curves"] == [] and bigram["parameters"] is None
    assert "state reset at each of" in kvp["perplexity"]["protocol"] and kvp["parameters"] > 0
    assert "every token but the first of each line" in unopened["perplexity"]["protocol"]
    assert kvp["perplexity"]["value"] == pytest.approx(min(row["valid"] for row in kvp["curves"]))
    assert [len(model["examples"]) for model in answer["models"]] == [5] * 6


def test_a_log_with_lines_that_say_nothing_is_described(tiny_run: Path, tmp_path: Path, work: Work) -> None:
    folder = shutil.copytree(tiny_run, tmp_path / "odd")
    shutil.rmtree(folder / "checkpoints")  # which know what was written
    (good,) = epoch_rows(folder)[-1:]
    odd = [{"loss": None}, {"loss": "1"}, {"loss": 1e9}, {"train_loss": None}, {"time": 5}, {"time": "noon"}]
    rows = [{**good, **each} for each in odd] + [{name: good[name] for name in ("event", "loss")}, {"event": "valid"}]
    for lines, value, points in ((rows, math.exp(good["loss"]), 3), ([{**good, "loss": 1e9}], None, 0)):
        (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in lines))
        (model,) = client_of(runs_of(folder), work).get("/api/models").json()["models"]
        assert [row["valid"] for row in model["curves"]] == pytest.approx([value] * points)
        assert (model["perplexity"] or {"value": None})["value"] == pytest.approx(value)


@pytest.mark.parametrize("run", ["1", "2", "3", "6"])
def test_a_saved_page_has_the_text_and_needs_no_server(client: TestClient, run: str) -> None:
    answer = client.post("/api/page", json={"run": run, "text": "the <img src=x onerror=alert(1)> sat"})
    assert "attachment" in answer.headers["content-disposition"] and "Content-Security-Policy" in answer.text
    assert "onerror" in answer.text and "<img" not in answer.text and "http://127" not in answer.text


def test_schema_describes_what_is_checked(client: TestClient) -> None:
    document, text = client.get("/api/schema").json(), client.get("/schema").text
    assert set(document["requests"]) == set(REQUESTS)
    for path, request in document["requests"].items():
        schema = document["$defs"][request["$ref"].rpartition("/")[2]]
        needed = {name: "the cat" for name in schema["required"]}
        defaults = {name: field["default"] for name, field in schema["properties"].items() if name not in needed}
        assert client.post(path, json={**needed, **defaults}).status_code == 200
        assert client.post(path, json={**needed, "nothing": 1}).status_code == 400
        assert path in text and all(
            f"{name}: {field['description']}" in text for name, field in schema["properties"].items()
        )
    assert client.get("/api/schema").headers["content-type"] == "application/json"


def test_a_yardstick_is_read_with(tmp_path: Path, work: Work) -> None:
    """A model of Hugging Face, which is an extra, by written word; it is asked for nothing else."""
    from tests.interop.test_yardstick import bytes_tokenizer, saved

    runs = runs_of(f"hf:{saved(tmp_path, bytes_tokenizer())}")
    (served,), client = runs.all, client_of(runs, work)
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


def test_every_preset_has_a_picture() -> None:
    for preset in PRESETS.values():
        picture = diagram(preset.config.model, 10_000)
        rooms = [room for room in picture.values() if room is not None]
        assert all(isinstance(room, dict) and all(room.values()) for room in rooms), preset.name
        assert (picture["memory"] is None) == (preset.config.model.memory.kind == "none")


def test_every_kind_has_an_equation() -> None:
    kinds: list[Any] = [*ENCODERS.values(), *HEADS.values(), *MEMORIES.values()]
    for kind in kinds:
        assert "=" in kind().equation and "\n" not in kind().equation and len(kind().equation) < 160, kind


def test_shapes_are_those_of_the_model() -> None:
    for memory in chain.from_iterable(SMALL_MEMORIES.values()):
        config = ModelConfig(embedding_size=5, encoder=LSTMConfig(hidden_size=HIDDEN), memory=memory)
        model, picture = LanguageModel(config, 11), diagram(config, 11)
        assert picture["head"]["shape"] == f"{model.memory.readout_size} → 11 words"
        if picture["memory"] is not None:
            assert picture["memory"]["shape"] == f"{HIDDEN} → {model.memory.readout_size}"


REAL = [pytest.mark.corpus, pytest.mark.skipif("SPANLM_DATA" not in os.environ, reason="needs corpora: SPANLM_DATA")]


@pytest.mark.slow
@pytest.mark.parametrize("name", [DEMO, *(pytest.param(name, marks=REAL) for name in CORPORA)])
def test_examples_are_in_the_words_of_their_corpus(name: str) -> None:
    if name in CORPORA and not (Path(os.environ["SPANLM_DATA"]) / name).is_dir():
        pytest.skip(f"needs the corpus {name} in SPANLM_DATA")
    corpus = spanlm.load_corpus(DataConfig(corpus=name), splits=("train",))
    examples = EXAMPLES.get(name, EXAMPLES[""])
    assert len(examples) == 5 and len({example["title"] for example in examples}) == 5
    for example in examples:
        assert all(word in corpus.vocabulary for word in example["text"].split()), example
        assert example["look"][-1] in ".?" and "{" not in example["look"]


class Counting(NextWordModel):
    def __init__(self, model: NextWordModel) -> None:
        super().__init__()
        self.model, self.head, self.vocabulary_size, self.words = model.eval(), model.head, model.vocabulary_size, 0

    def init_state(self, batch_size: int) -> LMState:
        return self.model.init_state(batch_size)

    def forward(self, tokens: Tensor, state: LMState) -> tuple[Readout, LMState]:
        self.words += tokens.numel()
        read: tuple[Readout, LMState] = self.model(tokens, state)
        return read


def read(model: NextWordModel, *parts: list[int], streams: int = 1) -> Tensor:
    """Log p of every next word, of parts that are read one after the other."""
    state, found = model.init_state(streams), []
    with evaluating(model):
        for part in parts:
            log_p, state = model.log_probs(torch.tensor([part] * streams).T, state)
            found.append(log_p)
    return torch.cat(found)


@pytest.mark.parametrize("config", models())
def test_what_is_remembered_is_what_would_be_computed(config: object) -> None:
    inner = Counting(language_model(config))  # type: ignore[arg-type]
    model, alone = Remembering(inner, Memo(10**8), "1"), inner.model
    first = read(model, [1, 2, 3], [4, 0])
    assert torch.equal(first, read(alone, [1, 2, 3], [4, 0])) and inner.words == 5
    assert torch.equal(read(model, [1, 2, 3], [4, 0]), first) and inner.words == 5, "all of it is known"
    assert torch.equal(read(model, [1, 2, 3], [2, 2]), read(alone, [1, 2, 3], [2, 2])) and inner.words == 7
    read(model, [1, 2], [3])
    assert inner.words == 10, "reading that stopped elsewhere may differ in its last digits"
    read(model, [1, 2, 3], streams=2)
    assert inner.words == 16, "of several streams nothing is remembered"


def test_models_share_a_memo_and_what_was_used_longest_ago_is_forgotten_first() -> None:
    inner = Counting(language_model(models()[0].values[0]))  # type: ignore[arg-type]
    memo = Memo(10**8)
    one, other = (Remembering(inner, memo, name) for name in ("1", "2"))
    read(one, [1, 2])
    read(other, [1, 2])
    assert inner.words == 4
    (size,) = {value[2] for value in memo._values.values()}
    model = Remembering(inner, Memo(2 * size), "1")
    inner.words = 0
    for text in ([1, 2], [3, 4], [1, 2], [0, 1], [1, 2]):  # [0, 1] takes the place of [3, 4]
        read(model, text)
    assert inner.words == 6
    read(model, [3, 4])
    assert inner.words == 8


def test_threads_share_it() -> None:
    model = language_model(models()[0].values[0]).eval()  # type: ignore[arg-type]
    remembering = Remembering(model, Memo(20_000), "1")
    texts = [[number % 5, number % 3] for number in range(300)]
    with ThreadPoolExecutor(8) as pool:
        for text, found in zip(texts, pool.map(lambda text: read(remembering, text), texts), strict=True):
            assert torch.equal(found, read(model, text))


def test_what_is_remembered_holds_the_bytes_that_are_counted(tiny_run: Path, lstm_run: Path, span_run: Path) -> None:
    for run in (tiny_run, lstm_run, span_run):
        memo, loaded = Memo(10**8), spanlm.load(run, "cpu").model
        read(Remembering(loaded, memo, "1"), list(range(16)), list(range(16)))
        for readout, state, size in memo._values.values():
            kept = [*state.flat().values(), readout.features]
            assert all(x.untyped_storage().nbytes() == x.nbytes for x in kept) and sum(x.nbytes for x in kept) <= size


def test_words_that_were_drawn_are_read_as_they_are(tiny_run: Path, bytes_run: Path) -> None:
    client = client_of(runs_of(tiny_run, bytes_run), Work(1, 8))

    def following(**fields: Any) -> Any:
        return client.post("/api/next", json=fields).json()["candidates"]

    assert following(run="1", prompt="the", words=["cat"]) == following(run="1", prompt="the cat")
    assert following(run="1", prompt="the", words=["cat", "<eos>"]) == following(run="1", prompt="the cat\n")
    # half of a character, and the byte that ends it
    begun = following(run="2", prompt="na", words=["Ã"], count=258)
    (ended,) = [each for each in begun if each["word"] == "¯"]
    assert ended["text"] == "ï"
    drawn = _words(client, run="2", prompt="na", words=["Ã", "¯"], length=3, seed=2)
    assert [event["word"] for event in drawn] == spanlm.load(bytes_run).generate("naï", length=3, seed=2)
    refused = client.post("/api/next", json={"run": "1", "words": ["yak"]})
    assert refused.status_code == 400 and refused.json()["field"] == "words"


def test_words_that_a_convention_leaves_out_leave_the_others_their_tokens(tiny_run: Path) -> None:
    runs = runs_of(tiny_run)
    runs.all[0].model.texts.convention = "ptb"
    (item,) = client_of(runs, Work(1, 8)).post("/api/read", json={"run": "1", "text": "the ; cat !"}).json()["items"]
    tokens = item["record"]["tokens"]
    assert [(word["text"], [tokens[at] for at in word["tokens"]]) for word in item["words"]] == [
        ("the", ["the"]),
        ("cat", ["cat"]),
    ]


@pytest.mark.parametrize("state", ["line", "carry"])
def test_blank_lines_before_a_text_move_its_words_alone(bytes_run: Path, state: str) -> None:
    client = client_of(runs_of(bytes_run), Work(1, 8))
    request = {"run": "1", "state": state, "text": "\n\nthe cat"}
    (item,) = client.post("/api/read", json=request).json()["items"]
    assert [(word["text"], word["start"]) for word in item["words"]] == [("the", 2), ("cat", 6)]
    tokens = item["record"]["tokens"]
    assert "".join(tokens[at] for at in item["words"][0]["tokens"]) == "the"


def test_a_run_of_bytes_is_read_by_word_and_written_as_text(bytes_run: Path) -> None:
    client, model = client_of(runs_of(bytes_run), Work(1, 8)), spanlm.load(bytes_run)
    text = " the naïve  cat \n\n猫 sat"
    (item,) = client.post("/api/read", json={"run": "1", "text": text, "state": "line"}).json()["items"]
    scores = [word for words in model.score_items(text.split("\n")) for word in words]
    assert (
        [word["text"] for word in item["words"]] == text.split() == [text[w["start"] : w["end"]] for w in item["words"]]
    )
    assert [word["surprisal"] for word in item["words"]] == pytest.approx([word.surprisal for word in scores], abs=1e-5)
    tokens = item["record"]["tokens"]
    assert [[tokens[at] for at in word["tokens"]] for word in item["words"]] == [w.tokens.split(" ") for w in scores]
    events = _words(client, run="1", prompt="naïv", length=9, seed=3)
    words = model.generate("naïv", length=9, seed=3)
    assert [event["word"] for event in events] == words
    assert [event["text"] for event in events] == list(model.texts.tokenizer.readable(words))
