"""What would not be the same run is refused, by the name of what differs; weights that are no numbers or do not fit."""

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from safetensors import safe_open

import spanlm
from spanlm.config import RunConfig
from spanlm.data.config import DataConfig
from spanlm.data.corpora import Corpus
from spanlm.data.token_files import TokenFile
from spanlm.errors import InputError, RunError
from spanlm.models.language_model import LanguageModel
from spanlm.models.memories import AttentiveConfig, KeyValueConfig, NGramConfig, NoMemoryConfig
from spanlm.store.checkpoints import load_last_checkpoint, save_checkpoint, to_bytes
from spanlm.store.run_folder import load_weights, model_digest, save_model, weights_digest
from spanlm.training.config import FinetuneConfig, OptimizerConfig, ScheduleConfig
from spanlm.training.progress import Watcher
from spanlm.training.run import ended, train
from spanlm.training.trainer import Trainer, refuse_other_device
from tests.cases import rest_slow
from tests.training.small import (
    NT_ASGD,
    WORDS,
    checkpoints,
    differing,
    make_config,
    make_corpus,
    outcome,
    signed,
    undisturbed,
    with_batching,
    with_training,
)

Changed = Callable[[RunConfig], RunConfig]


def model(**fields: Any) -> Changed:
    return lambda config: replace(config, model=replace(config.model, **fields))


def training(**fields: Any) -> Changed:
    return lambda config: with_training(config, **fields)


CHANGES: dict[str, Changed] = {
    "training.seed=1, not 2": training(seed=2),
    "training.precision=fp32, not bf16": training(precision="bf16"),
    "training.optimizer.clip=5.0, not null": training(optimizer=OptimizerConfig(lr=0.02, clip=None)),
    "training.batching.length=6, not 7": lambda config: with_batching(config, length=7),
    "model.memory.window=4, not 5": model(memory=KeyValueConfig(roles=3, window=5)),
    "model.memory.kind=key_value, not ngram": model(memory=NGramConfig(order=3)),
    "data.corpus=tiny, not other": lambda config: replace(config, data=replace(config.data, corpus="other")),
    "data.min_count=1, not 2": lambda config: replace(config, data=replace(config.data, min_count=2)),
}


@pytest.mark.parametrize("difference", rest_slow(CHANGES, kind=lambda name: name.partition(".")[0]))
def test_another_configuration_is_refused_by_the_field(begun: Path, corpus: Corpus, difference: str) -> None:
    kept = (begun / "config.yaml").read_bytes()
    with pytest.raises(InputError, match="the run began with") as error:
        train(CHANGES[difference](make_config(epochs=1)), corpus, begun, resume=True)
    assert difference in str(error.value) and error.value.exit_status == 2
    assert (begun / "config.yaml").read_bytes() == kept


def test_random_numbers_go_on_only_where_they_were_drawn(begun: Path, corpus: Corpus) -> None:
    """A run that was begun on a GPU, on a machine without one; and the other way round."""
    last = checkpoints(begun)[-1]
    with pytest.raises(InputError, match=r"training\.device=cuda: .* was trained on cpu.* Use training\.device=cpu"):
        refuse_other_device({"generator.cpu": torch.get_rng_state()}, torch.device("cuda"))
    carried = safetensors.torch.load((last / "carried.safetensors").read_bytes())
    signed(last, "carried.safetensors", to_bytes({**carried, "generator.cuda": torch.ones(1)}))
    with pytest.raises(InputError, match=r"training\.device=cpu: .* was trained on cuda.* Use training\.device=cuda"):
        train(make_config(epochs=2), corpus, begun, resume=True)


def other_split(corpus: Corpus, split: str, change: Callable[[TokenFile], TokenFile]) -> Corpus:
    return replace(corpus, splits={**corpus.splits, split: change(corpus.splits[split])})


def one_word(tokens: TokenFile) -> TokenFile:
    ids = tokens.ids.copy()
    ids[len(ids) // 2] = 1 + ids[len(ids) // 2] % (len(WORDS) - 1)
    return TokenFile(ids, tokens.documents)


def one_document(tokens: TokenFile) -> TokenFile:
    return TokenFile(tokens.ids, np.delete(tokens.documents, 1))


@pytest.mark.parametrize("split", ["train", "valid"])
@pytest.mark.parametrize("change", [one_word, one_document])
def test_another_text_is_refused(
    begun: Path, corpus: Corpus, split: str, change: Callable[[TokenFile], TokenFile]
) -> None:
    with pytest.raises(InputError, match="was trained on another text than tiny now holds"):
        train(make_config(), other_split(corpus, split, change), begun, resume=True)
    # the test text is not trained on
    assert train(make_config(), other_split(corpus, "test", change), begun, resume=True).epoch == 2


def test_another_vocabulary_of_the_same_size_is_refused(begun: Path) -> None:
    words = (*WORDS[:-2], WORDS[-1], WORDS[-2])
    with pytest.raises(InputError, match=r"vocabulary\.json: is not the vocabulary of tiny"):
        train(make_config(), make_corpus(words=words), begun, resume=True)


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_folder_with_a_run_or_any_part_of_one_is_refused_without_resume(
    begun: Path, room: Path, corpus: Corpus
) -> None:
    kept = contents(begun)
    with pytest.raises(InputError, match=r"already holds a run \(config\.yaml.*resume=True") as error:
        train(make_config(), corpus, begun)
    assert error.value.exit_status == 2
    assert contents(begun) == kept
    for name in ("config.yaml", "checkpoints", "model.safetensors", "metrics.jsonl"):
        (room / name).mkdir()
        (room / name / name).touch()
        with pytest.raises(InputError, match=name):
            train(make_config(), corpus, room / name)


@pytest.mark.parametrize("lost", [("checkpoints",), ("checkpoints", "metrics.jsonl")])
def test_a_model_without_checkpoints_is_not_trained_anew(begun: Path, corpus: Corpus, lost: tuple[str, ...]) -> None:
    train(make_config(), corpus, begun, resume=True)
    for name in lost:
        shutil.rmtree(begun / name) if (begun / name).is_dir() else (begun / name).unlink()
    kept = contents(begun)
    with pytest.raises(InputError, match=r"holds a trained model, but no checkpoints/ to go on from.*another folder"):
        train(make_config(), corpus, begun, resume=True)
    assert contents(begun) == kept


def test_nor_is_a_finished_run_of_one_epoch(room: Path, corpus: Corpus) -> None:
    train(make_config(epochs=1), corpus, room / "one")
    shutil.rmtree(room / "one/checkpoints")
    with pytest.raises(InputError, match="holds a trained model, but no checkpoints/"):
        train(make_config(epochs=2), corpus, room / "one", resume=True)


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(path.read_bytes()[:2000])])
def test_a_lost_model_is_made_again_or_missed(damage: Callable[[Path], object], begun: Path, corpus: Corpus) -> None:
    """The checkpoint has the weights where the best epoch is the last."""
    model, two = begun / "model.safetensors", make_config(epochs=2)
    whole = model.read_bytes()
    damage(model)
    assert damage is not Path.unlink or ended(make_config(epochs=1), corpus, begun) is None
    train(make_config(epochs=1), corpus, begun, resume=True)
    assert model.read_bytes() == whole
    at_end = train(two, corpus, begun, resume=True)
    checkpoint, _ = load_last_checkpoint(begun / "checkpoints")
    assert checkpoint is not None

    def again(config: RunConfig, **position: object) -> None:
        at = replace(checkpoint, position=checkpoint.position | position)
        save_checkpoint(begun / "checkpoints", at_end.step, at)
        if model.exists():
            damage(model)
        train(config, corpus, begun, resume=True)

    whole = model.read_bytes()
    again(two)
    assert model.read_bytes() == whole
    worse: dict[str, object] = {"best_epoch": 1, "best_weights": "of another epoch"}
    with pytest.raises(InputError, match=r"is lost or damaged, and the last checkpoint has not the weights of epoch 1"):
        again(two, **worse)
    again(make_config(epochs=3), **worse, best_loss=99.0)
    assert spanlm.load(begun).config.training.epochs == 3, "a better model came"


def test_a_model_of_another_vocabulary_is_not_written_over(begun: Path, corpus: Corpus) -> None:
    save_model(begun, Trainer(make_config(), corpus, begun, Watcher()).model, "another")
    kept = contents(begun)
    with pytest.raises(InputError, match="another vocabulary"):
        train(make_config(epochs=2), corpus, begun, resume=True)
    assert contents(begun) == kept


def test_a_family_is_not_covered_by_a_single_run(room: Path, corpus: Corpus) -> None:
    train(make_config(epochs=1), corpus, room / "family" / "seed-1")
    with pytest.raises(InputError, match=r"family: holds a family of 1 seeds.*--seeds"):
        train(make_config(epochs=1), corpus, room / "family")
    assert [path.name for path in (room / "family").iterdir() if path.name != ".lock"] == ["seed-1"]


@pytest.mark.parametrize(("name", "said"), [("file", "/file/run: cannot be used"), ("\udcfe", "must be UTF-8")])
def test_a_folder_that_cannot_hold_weights_is_refused(room: Path, corpus: Corpus, name: str, said: str) -> None:
    (room / "file").touch()
    with pytest.raises(InputError, match=said) as error:
        train(make_config(), corpus, room / name / "run")
    assert error.value.exit_status == 2 and [path.name for path in room.iterdir()] == ["file"]


WHOLE = make_corpus(documents=False)
SINGLE = AttentiveConfig(score="single")
KEPT = "Take training.batching.kind=sentences, or give model.memory.window a number."
STAGED = partial(make_config, NoMemoryConfig(), kind="streams", shuffle=False, optimizer=NT_ASGD, epochs=2)

UNFIT: list[tuple[RunConfig, Corpus, str]] = [
    (make_config(device="no-such-device"), WHOLE, "training.device=no-such-device"),
    (make_config(kind="auto"), WHOLE, "kind=auto, which is streams for this text: training.batching.shuffle=true"),
    (make_config(kind="documents", shuffle=False), WHOLE, "training.batching.kind=documents: the training text is one"),
    (make_config(SINGLE, kind="streams", shuffle=False), make_corpus(), f"training.batching.kind=streams. {KEPT}"),
    (make_config(SINGLE, kind="auto", shuffle=False), make_corpus(), f"kind=auto (here documents). {KEPT}"),
    (
        STAGED(finetune=FinetuneConfig(stages=1, last_latent_dropout=0.5)),
        make_corpus(),
        "last_latent_dropout=0.5: must be null with model.head.kind=softmax",
    ),
]


@pytest.mark.parametrize(("config", "text", "said"), UNFIT, ids=[said for _, _, said in UNFIT])
def test_what_does_not_fit_is_refused_before_anything_is_written(
    room: Path, config: RunConfig, text: Corpus, said: str
) -> None:
    """A folder that was made for the run is gone, and one of the user's own stays."""
    (room / "own").mkdir()
    for name in ("own", "new"):
        with pytest.raises(InputError) as error:
            train(config, text, room / name)
        assert said in str(error.value) and "\n" not in str(error.value)
    assert {path.name for path in (room / "own").iterdir()} == {".lock"} and not (room / "new").exists()


def test_a_corpus_that_the_configuration_does_not_name_is_refused(room: Path) -> None:
    """The run's folder would name a text that it never saw."""
    own, twin = room / "own.txt", room / "other" / "own.txt"
    twin.parent.mkdir()
    for path in (own, twin):
        path.write_text(f"the cat of {path.parent.name} sat .\n" * 40)
    config = replace(make_config(epochs=1), data=DataConfig(corpus=str(own)))
    for corpus, message in (
        (spanlm.load_corpus("demo"), r"data\.corpus=.*the corpus given was loaded with demo"),
        (spanlm.load_corpus(twin), rf"data\.corpus={own}: the corpus given was loaded with {twin}"),
        (spanlm.load_corpus(DataConfig(corpus=str(own), min_count=1)), r"data\.min_count=null: .* loaded with 1"),
        (replace(make_corpus(), splits={"train": make_corpus().splits["train"]}), "training needs valid, too"),
    ):
        with pytest.raises(InputError, match=message):
            train(config, corpus, room / "run")
        assert not (room / "run").exists()


def test_what_is_no_configuration_corpus_or_path_leaves_no_folder(room: Path, corpus: Corpus) -> None:
    config, folder = make_config(epochs=1), room / "run"
    given: list[tuple[Any, ...]]
    given = [(config, "demo", folder), ({}, corpus, folder), (spanlm.find_preset("demo"), corpus, folder)]
    given += [(config, corpus, None), (config, corpus, folder, Watcher)]
    for wrong, name in zip(given, ("corpus", "config", "config", "folder", "watcher"), strict=True):
        with pytest.raises(InputError, match=rf"^{name}="):
            train(*wrong)
    assert not folder.exists()


def test_what_was_trained_can_be_loaded_whatever_types_its_values_had(room: Path, corpus: Corpus) -> None:
    """And a caller's random numbers go on as if there had been no training."""
    config = with_training(make_config(epochs=1), seed=np.int64(3), patience=np.int32(2))
    torch.manual_seed(7)
    expected = torch.rand(1)
    torch.manual_seed(7)
    train(config, corpus, room / "run")
    assert torch.rand(1) == expected
    assert spanlm.load(room / "run").config.training.seed == 3
    for wrong in ({"epochs": 2.0}, {"seed": 1.5}, {"log_every": 1e2}):
        with pytest.raises(InputError, match=rf"training\.{next(iter(wrong))}=.*: must be a whole number"):
            train(with_training(config, **wrong), corpus, room / "other")
    assert not (room / "other").exists()


def edit(folder: Path, pattern: str, text: str) -> None:
    path = folder / "config.yaml"
    changed, count = re.subn(pattern, text, path.read_text(), count=1)
    assert count == 1
    path.write_text(changed)


def remark(folder: Path, change: Callable[[dict[str, Any], dict[str, torch.Tensor]], object]) -> None:
    """Write model.safetensors again with other marks or weights, as another program could."""
    path = folder / "model.safetensors"
    with safe_open(path, framework="pt") as file:
        marks, tensors = json.loads(file.metadata()["spanlm"]), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    change(marks, tensors)
    marks["weights"] = weights_digest(tensors)
    path.write_bytes(to_bytes(tensors, {"spanlm": json.dumps(marks)}))


def going_on(folder: Path, corpus: Corpus, **training: Any) -> RunConfig:
    """The folder's own configuration, as `train --resume auto` has it, gone on with."""
    config = with_training(RunConfig.load(folder / "config.yaml"), **training)
    train(config, corpus, folder, resume=True)
    return config


@pytest.mark.parametrize("damage", [("length: 6", "length: 16"), ("window: 4", "window: 5"), (r"  loss: mean\n", "")])
def test_another_configuration_is_neither_loaded_nor_trained(
    begun: Path, corpus: Corpus, damage: tuple[str, str]
) -> None:
    model = (begun / "model.safetensors").read_bytes()
    edit(begun, *damage)
    damaged = (begun / "config.yaml").read_bytes()
    with pytest.raises(InputError, match=r"config\.yaml"):
        spanlm.load(begun)
    with pytest.raises(InputError, match=r"config\.yaml"):
        going_on(begun, corpus, epochs=2)
    assert (begun / "model.safetensors").read_bytes() == model
    assert (begun / "config.yaml").read_bytes() == damaged  # what is left of it is not overwritten


@pytest.mark.slow
def test_what_may_change_by_hand_or_by_going_on_leaves_the_run_whole(begun: Path, corpus: Corpus) -> None:
    edit(begun, r"  epochs: 1\n", "  epochs: 2\n")
    edit(begun, "dir: null", "dir: elsewhere")
    edit(begun, "device: cpu", "device: auto")
    spanlm.load(begun)
    going_on(begun, corpus)
    going_on(begun, corpus, epochs=3, patience=9)
    assert spanlm.load(begun).config.training.patience == 9
    assert not differing(outcome(begun), undisturbed(make_config(epochs=3)))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 1e30])
def test_weights_that_are_no_numbers_are_refused_by_name(begun: Path, corpus: Corpus, room: Path, value: float) -> None:
    def poison(marks: object, tensors: dict[str, torch.Tensor]) -> None:
        tensors["head.bias"][:3] = value

    other = with_training(make_config(epochs=1), start_from=str(begun))
    remark(begun, poison)
    loads = (lambda: spanlm.load(begun), lambda: spanlm.load_ensemble([begun]))
    for read in (*loads, lambda: train(other, corpus, room / "other")):
        with pytest.raises(InputError, match=r"head\.bias: 3 of 24 values"):
            read()


def test_such_weights_are_not_gone_on_with_and_not_saved(begun: Path, corpus: Corpus) -> None:
    last, model = checkpoints(begun)[-1], spanlm.load(begun)
    weights = dict(model.model.named_parameters())
    weights["head.bias"].data[1] = float("nan")
    before = (begun / "model.safetensors").read_bytes()
    with pytest.raises(RunError, match=r"head\.bias: 1 of 24 values"):
        save_model(begun, model.model, model.vocabulary.hash)
    assert (begun / "model.safetensors").read_bytes() == before
    signed(last, "weights.safetensors", to_bytes(weights))
    with pytest.raises(InputError, match=r"head\.bias: 1 of 24 values"):
        going_on(begun, corpus, epochs=2)


def test_the_same_model_is_the_same_file(begun: Path) -> None:
    model, files = spanlm.load(begun), set()
    for _ in range(8):
        save_model(begun, model.model, model.vocabulary.hash)
        files.add((begun / "model.safetensors").read_bytes())
    assert len(files) == 1


@pytest.mark.parametrize("memory", [KeyValueConfig(roles=2, window=4), NGramConfig(order=3)])
def test_weights_of_another_model_are_refused_by_name(begun: Path, corpus: Corpus, memory: Any) -> None:
    other = LanguageModel(make_config(memory).model, len(WORDS))
    before = model_digest(other)
    with pytest.raises(InputError, match=r"model\.safetensors: does not fit the run of config\.yaml: [a-z_.]+ is"):
        load_weights(begun, other, corpus.vocabulary.hash)
    assert model_digest(other) == before


@pytest.mark.parametrize("marks", ["[]", "5", "{", "[" * 10_000], ids=lambda marks: marks[:3])
def test_marks_that_are_no_object_are_damage(begun: Path, marks: str) -> None:
    (begun / "model.safetensors").write_bytes(to_bytes({"weight": torch.ones(1)}, {"spanlm": marks}))
    with pytest.raises(InputError, match=r"model\.safetensors: damaged: .*\. Copy it again"):
        spanlm.load(begun)


def test_a_cosine_that_has_begun_has_its_end(corpus: Corpus, room: Path) -> None:
    """Its rates depend on the number of epochs, which may change otherwise."""
    config = make_config(epochs=1, schedule=ScheduleConfig(kind="cosine"))
    train(config, corpus, room)
    with pytest.raises(InputError, match=r"began with training.epochs=1, not 2; .* \(only (?!.*training\.epochs)"):
        train(with_training(config, epochs=2), corpus, room, resume=True)
