"""RunConfig: in and out of YAML and options, limits of every number, and errors that name the field."""

import math
import re
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
import yaml
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

from spanlm.config import PARTS, REMOVED, RunConfig, config_digest, flat, nested, save_config, with_options
from spanlm.errors import InputError, as_written
from spanlm.models.encoders import ENCODERS
from spanlm.models.heads import HEADS
from spanlm.models.language_model import ModelConfig
from spanlm.models.memories import MEMORIES, KeyValueConfig
from spanlm.models.memories.span_buffer import GateConfig, RewardConfig
from spanlm.papers.registry import PRESETS
from spanlm.training.config import BatchingConfig, OptimizerConfig, ScheduleConfig, TrainingConfig
from tests.cases import rest_slow
from tests.training.small import RUNS

# names that YAML could take for something else
names = st.sampled_from(["true", "1", "1e3", "no", "a: b", "- x", "%TAG", "'", '"', "2026-01-01", " x ", "x #c", "[a]"])


def others(value: object) -> st.SearchStrategy[Any]:
    """Other values for a field, of the type of the one that it has."""
    numbers = st.integers(0, 60) | st.sampled_from([1000, 2**62])
    kinds: dict[type, st.SearchStrategy[Any]] = {
        bool: st.booleans(),
        int: numbers,
        float: st.floats(0, 1) | st.floats(1e-12, 1e12) | numbers.map(float),
        str: names | st.text(st.sampled_from("aZ0_./: é猫"), min_size=1, max_size=8),
    }
    return st.none() | (st.one_of(numbers, names) if value is None else kinds[type(value)])


@pytest.mark.slow
@settings(max_examples=30, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_yaml_and_back(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Whatever value a field can have: what is given is what is read, from the file, too."""
    base = data.draw(st.sampled_from(list(RUNS.values())))()
    fields = flat(base.to_tree())
    name = data.draw(st.sampled_from(sorted(fields)))
    value = data.draw(others(fields[name]))
    try:
        config = RunConfig.from_tree(nested({**fields, name: value}))
    except InputError:
        reject()
    if type(value) is type(fields[name]):  # for null, a word of digits may be a number
        assert flat(config.to_tree()) == {**fields, name: value}
    path = tmp_path_factory.getbasetemp() / "config.yaml"
    path.write_text(config.to_yaml(), encoding="utf-8")
    loaded = RunConfig.load(path, whole=True)
    assert loaded == config and loaded.to_yaml() == config.to_yaml()
    assert type(loaded.model.memory) is type(config.model.memory)


def test_the_runs_have_every_kind() -> None:
    """A new kind must be added to `RUNS`."""
    for part, registry in PARTS.items():
        assert {getattr(build().model, part).kind for build in RUNS.values()} == set(registry)


KINDS = {tuple(flat(preset.config.to_tree())): name for name, preset in reversed(PRESETS.items())}
"""A preset for each set of fields that a configuration can have."""


@pytest.mark.parametrize("name", rest_slow(KINDS.values(), always=5))
def test_presets_survive_and_every_field_is_an_option(name: str) -> None:
    config = PRESETS[name].config
    assert RunConfig.from_tree(yaml.safe_load(config.to_yaml())) == config
    tree = config.to_tree()
    assert with_options(RunConfig(), {field: as_written(value) for field, value in flat(tree).items()}) == config


def test_what_is_left_out_has_its_default() -> None:
    config = RunConfig.from_tree({"model": {"memory": {"window": 9}}, "training": {"optimizer": {"clip": None}}})
    assert config.model.memory == KeyValueConfig(roles=3, window=9)
    assert config.training.optimizer == OptimizerConfig(clip=None)
    assert replace(config, model=ModelConfig(), training=TrainingConfig()) == RunConfig()


FIELDS = (Path(__file__).parent / "refused_fields.txt").read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("row", [line for line in FIELDS if line and not line.startswith("#")])
def test_errors_name_file_field_and_value(row: str) -> None:
    fields, _, said = row.partition(" | ")
    values = (field.partition("=") for field in fields.split())
    with pytest.raises(InputError) as error:
        RunConfig.from_tree(nested({name: yaml.safe_load(value) for name, _, value in values}), "my.yaml")
    assert str(error.value).startswith(f"my.yaml: {said or f'{fields.split()[-1]}: must '}")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("tree", [[], 5, "data\n" * 1000], ids=lambda tree: str(tree)[:9])
def test_a_configuration_must_be_a_group_and_a_long_value_is_cut(tree: Any) -> None:
    said = r"^my\.yaml: the configuration=.{1,70}: must be a group of fields$"
    with pytest.raises(InputError, match=said):
        RunConfig.from_tree(tree, "my.yaml")


def test_runs_before_a_field_was_added_keep_their_digest() -> None:
    """Of a network of 0.2.0: of its tree as that version wrote it."""
    config = RunConfig.from_tree({"model": {"encoder": {"kind": "hornn", "pooling": "gated"}}})
    old = flat(config.to_tree())
    assert old.pop("model.encoder.newest_apart") is False
    assert config_digest(nested(old)) == config_digest(config.to_tree())
    changed = config.to_tree()
    changed["model"]["encoder"]["newest_apart"] = True
    assert config_digest(changed) != config_digest(config.to_tree())


@pytest.mark.parametrize("removed", REMOVED)
def test_a_removed_field_loads_with_the_value_that_is_left(removed: str) -> None:
    part, kind, name = re.fullmatch(r"(model\.\w+):?(\w*)\.([\w.]+)", removed).groups()  # type: ignore[union-attr]
    name, value, kinds = f"{part}.{name}", REMOVED[removed], {f"{part}.kind": kind} if kind else {}
    config = RunConfig.from_tree(nested(kinds))
    old = flat(config.to_tree()) | {name: value}
    assert name not in flat(config.to_tree())
    assert RunConfig.from_tree(nested(old)) == config
    assert config_digest(nested(old)) == config_digest(config.to_tree())
    if value is not None:  # the digest knows the field
        assert config_digest(nested(old | {name: "other"})) != config_digest(config.to_tree())
    with pytest.raises(InputError, match=rf"my.yaml: {name}=other: this version has .* alone"):
        RunConfig.from_tree(nested(old | {name: "other"}), "my.yaml")


@pytest.mark.parametrize("lacked", ["includes_current", "recency", "merge"])
def test_a_run_without_a_later_field_loads_and_its_weights_belong_to_it(lacked: str, tmp_path: Path) -> None:
    config, path = PRESETS["salton2017/single-ptb"].config, tmp_path / "config.yaml"
    tree = config.to_tree()
    value = tree["model"]["memory"].pop(lacked)
    path.write_text(yaml.safe_dump(tree))
    assert RunConfig.load(path, whole=True) == config
    if lacked != "merge":  # no file of 0.2.0 has them; all have `merge`
        assert config_digest(tree) == config_digest(config.to_tree())
    other = {"includes_current": True, "recency": "linear", "merge": "context"}[lacked]
    assert value != other
    tree["model"]["memory"][lacked] = other
    assert config_digest(tree) != config_digest(config.to_tree())


def test_an_empty_file_is_the_default(tmp_path: Path) -> None:
    for text in ("# nothing\n", "{model: {}, training: {optimizer: {}}}"):
        (tmp_path / "c.yaml").write_text(text)
        assert RunConfig.load(tmp_path / "c.yaml") == RunConfig()


@pytest.mark.parametrize(
    "content",
    [b"a: [", b"\xff\xfe", b"a: b: c", b"a: !!python/object/apply:os.getcwd []", b"\t- x: [", b"a: 2020-99-99"],
    ids=str,
)
def test_what_is_no_yaml_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_bytes(content)
    with pytest.raises(InputError, match=r"c\.yaml: is not YAML"):
        RunConfig.load(tmp_path / "c.yaml")


@pytest.mark.parametrize(
    ("content", "what"),
    [
        ("a: &a [1]\nb: *a\n", "line 1: an alias or an anchor"),
        ("data: {corpus: x}\ntraining: {<<: {seed: 1}}\n", "line 2: a merge"),
        ("data: {corpus: ptb}\nmodel: {}\ndata: {min_count: 3}\n", "line 3: data is there already"),
        (f"training:\n  seed: {'9' * 4000}\n", "line 2: a number of more than 20 digits"),
        (f"training:\n  seed: 0x{'f' * 20_000}\n", "line 2: a number"),
        (f"training:\n  seed: 1{':1' * 100}\n", "line 2: a number"),
        (f"data: [{'0,' * 10_001}]", "more than 10,000 values"),
        (f"# {'x' * 2**20}", "must have at most 1,048,576"),
        pytest.param("[" * 3_000, "c.yaml: is nested too deeply", marks=pytest.mark.slow),
    ],
    ids=lambda text: text[:20],
)
def test_what_grows_is_no_configuration(tmp_path: Path, content: str, what: str) -> None:
    (tmp_path / "c.yaml").write_text(content)
    with pytest.raises(InputError, match=re.escape(what)) as error:
        RunConfig.load(tmp_path / "c.yaml")
    assert len(str(error.value)) < 300


def test_a_run_of_a_later_schema_or_that_lacks_a_field_is_refused(tmp_path: Path) -> None:
    path, config = tmp_path / "config.yaml", PRESETS["li2020/awd-snb-ptb"].config
    save_config(path, config.to_yaml())
    assert RunConfig.load(path, whole=True) == config
    text = path.read_text()
    path.write_text(text.replace("schema: 1\n", "schema: 2\n"))
    with pytest.raises(InputError, match=r"config\.yaml: schema=2: must be 1"):
        RunConfig.load(path)
    tree = yaml.safe_load(text)
    del tree["model"]["memory"]["newest"]
    path.write_text(yaml.safe_dump(tree))
    with pytest.raises(InputError, match=r"lacks model.memory.newest: it was cut"):
        RunConfig.load(path, whole=True)


ROOMS = [ModelConfig, *ENCODERS.values(), *MEMORIES.values(), *HEADS.values(), GateConfig, RewardConfig]
TRAINING = [TrainingConfig, OptimizerConfig, ScheduleConfig, BatchingConfig]


@pytest.mark.parametrize("room", [*ROOMS, *TRAINING])
def test_what_is_beyond_the_limits_is_refused_by_name(room: Any) -> None:
    hints = get_type_hints(room)
    for field in fields(room):
        kinds = {*get_args(hints[field.name]), hints[field.name]}
        values = [-1, 0] if int in kinds else [math.nan, -1.0, math.inf] if float in kinds else []
        values = values[: 1 + (float in kinds)] if room in TRAINING else values  # 0 steps of a warm-up are some
        values += [1.0] if "dropout" in field.name and float in kinds else []
        values = [math.nan, math.inf] if field.name == "forget_bias" else values
        for value in values:
            with pytest.raises(InputError, match=rf"^(model|training)\..*{field.name}={value}: must be "):
                room(**{field.name: value})


@pytest.mark.parametrize(("size", "parts", "use"), [(400, 3, "399 or 402"), (301, 2, "300 or 302"), (2, 3, "3")])
def test_a_size_that_does_not_divide_is_refused_with_those_that_do(size: int, parts: int, use: str) -> None:
    with pytest.raises(InputError, match=rf"^model\.memory\.roles={parts}: .* got {size}.* Use {use}\.$"):
        KeyValueConfig(roles=parts).part_size(size, "model.memory.roles")
    for other in use.split(" or "):
        assert KeyValueConfig(roles=parts).part_size(int(other), "model.memory.roles") * parts == int(other)


@pytest.mark.parametrize(
    ("field", "text", "value"),
    [
        ("training.epochs", "010", 10),
        ("training.optimizer.lr", "1e-3", 0.001),
        ("training.optimizer.clip", ".inf", math.inf),
        ("training.patience", "null", None),
        ("data.download", "True", True),
    ],
)
def test_a_text_stands_for_the_value_that_it_reads_as(field: str, text: str, value: object) -> None:
    assert flat(with_options(RunConfig(), {field: text}).to_tree())[field] == value


@pytest.mark.parametrize("text", ["", "1:30", "[" * 3000, "1" * 5000, "3.5"])
def test_a_text_that_is_no_whole_number_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"^training\.patience="):
        with_options(RunConfig(), {"training.patience": text})
