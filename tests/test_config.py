from __future__ import annotations

import hashlib
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spanlm.cli.train import named_config, with_options
from spanlm.config import CHANGEABLE, OPTIONAL, RunConfig, config_digest, config_parser, flat, kinds_of, parsed_config
from spanlm.data.config import DataConfig
from spanlm.errors import InputError
from spanlm.models.encoders import ENCODERS, AWDLSTMConfig, HORNNConfig, LSTMConfig, RNNConfig, VariationalLSTMConfig
from spanlm.models.heads import HEADS, MixtureOfSoftmaxesConfig, SoftmaxConfig
from spanlm.models.language_model import ModelConfig
from spanlm.models.memories import (
    MEMORIES,
    AttentiveConfig,
    KeyValueConfig,
    NGramConfig,
    NoMemoryConfig,
    PointerSentinelConfig,
    RecurrentMemoryConfig,
    SpanBufferConfig,
)
from spanlm.models.memories.span_buffer.mixture import LEAST_TEMPERATURE, GateConfig, RewardConfig
from spanlm.presets import PRESETS
from spanlm.training.config import (
    BatchingConfig,
    FinetuneConfig,
    OptimizerConfig,
    ScheduleConfig,
    TrainingConfig,
)

counts = st.integers(1, 2000)
shares = st.floats(0, 0.99)
positive = st.floats(1e-12, 1e12)
# names that YAML could take for something else
names = st.one_of(
    st.sampled_from(["true", "1", "1e3", "no", "a: b", "- x", "%TAG", "'", '"', "2026-01-01", " x ", "x #c", "[a]"]),
    st.text(st.sampled_from("aZ0-_./: é猫"), min_size=1, max_size=8),
)


def maybe(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | values


data_fields: dict[str, Any] = {
    "corpus": names,
    "dir": maybe(names),
    "download": st.booleans(),
    "min_count": maybe(counts),
    "max_size": maybe(st.integers(3, 10**6)),
    "documents": st.sampled_from(["none", "blank-line", "heading", "auto"]),
}
# sentences are known by their capitals, which "words" makes small
data_configs = st.one_of(
    st.builds(
        DataConfig,
        tokenizer=st.sampled_from(["whitespace", "words", "straight-words"]),
        lines=st.just("as-written"),
        **data_fields,
    ),
    st.builds(DataConfig, tokenizer=st.just("whitespace"), lines=st.just("sentences"), **data_fields),
)
memories = st.one_of(
    st.builds(NoMemoryConfig),
    st.builds(KeyValueConfig, roles=st.integers(1, 3), window=counts),
    st.builds(NGramConfig, order=st.integers(2, 20)),
    st.builds(PointerSentinelConfig, window=counts, pointer_loss=st.booleans()),
    st.builds(
        AttentiveConfig,
        score=st.sampled_from(["single", "combined", "mean"]),
        window=maybe(counts),
        merge=st.sampled_from(["tanh", "linear"]),
        merge_bias=st.booleans(),
        zero_slot=st.booleans(),
    ),
    st.builds(
        AttentiveConfig,
        score=st.just("none"),
        merge=st.sampled_from(["tanh", "linear"]),
        merge_bias=st.booleans(),
    ),
    st.builds(
        RecurrentMemoryConfig,
        window=counts,
        temporal=st.booleans(),
        composition=st.sampled_from(["gated", "linear"]),
    ),
)
encoders = st.one_of(
    st.builds(LSTMConfig, hidden_size=counts, layers=counts, dropout=shares, forget_bias=maybe(st.floats(-1e9, 1e9))),
    st.builds(
        VariationalLSTMConfig,
        hidden_size=counts,
        layers=counts,
        input_dropout=shares,
        recurrent_dropout=shares,
        per_gate=st.booleans(),
        zoneout_h=shares,
        zoneout_c=shares,
        forget_bias=maybe(st.floats(-1e9, 1e9)),
    ),
    st.builds(
        AWDLSTMConfig,
        hidden_size=counts,
        layers=counts,
        last_size=counts,
        hidden_dropout=shares,
        weight_drop=shares,
    ),
    st.builds(RNNConfig, hidden_size=counts, layers=counts, dropout=shares),
    st.builds(HORNNConfig, hidden_size=counts, order=counts, forgetting_factor=st.floats(1e-12, 1)),
    st.builds(HORNNConfig, hidden_size=counts, order=counts, pooling=st.sampled_from(["gated", "max"])),
)
span_lengths = st.integers(2, 40)
temperatures = st.floats(LEAST_TEMPERATURE, 1e6)
gates = st.builds(GateConfig, training_temperature=temperatures, evaluation_temperature=temperatures)
rewards = st.builds(
    RewardConfig,
    weight=st.floats(0, 1e6),
    power=positive,
    most=st.floats(1.01, 1e6),
    base=st.floats(0, 1),
    slope=positive,
)
span_buffers = span_lengths.flatmap(
    lambda length: st.builds(
        SpanBufferConfig,
        buffer_size=st.integers(1, 50).map(lambda spans: spans * length),
        span_length=st.just(length),
        words=st.booleans(),
        newest=st.sampled_from(["before", "current"]),
        attention_size=maybe(counts),
        score=st.sampled_from(["tanh", "literal"]),
        dropout=shares,
        gate=gates,
        reward=rewards,
    )
)
adversarial: dict[str, Any] = {
    "adversarial": st.floats(0, 1e6),
    "adversarial_direction": st.sampled_from(["own", "shared"]),
    "adversarial_gate": st.sampled_from(["cosine", "none"]),
}
mixture: dict[str, Any] = {
    "experts": counts,
    "latent_size": maybe(counts),
    "latent_dropout": shares,
    "tied": st.booleans(),
    "bias": st.booleans(),
    **adversarial,
}
plain_models = st.builds(
    ModelConfig,
    embedding_size=counts,
    embedding_dropout=shares,
    shared_words=st.booleans(),
    input_noise=st.floats(0, 3),
    input_dropout=shares,
    output_dropout=shares,
    locked_dropout=st.booleans(),
    init_range=positive,
    bias_range=maybe(st.floats(0, 1e12)),
    encoder=encoders,
    memory=memories,
    head=st.one_of(
        st.builds(SoftmaxConfig, tied=st.booleans(), bias=st.booleans(), projection=st.booleans(), **adversarial),
        st.builds(SoftmaxConfig, projection=st.just(True), projection_penalty=st.floats(0, 1e6)),
        st.builds(MixtureOfSoftmaxesConfig, **mixture),
    ),
)
# a span buffer has a dropout of its own, and may be projected
model_configs = st.one_of(
    plain_models,
    st.builds(lambda model, buffer: replace(model, memory=buffer, output_dropout=0.0), plain_models, span_buffers),
)
batching_sizes = {"batch_size": counts, "length": counts, "eval_batch_size": counts}
batching_configs = st.one_of(
    st.builds(
        BatchingConfig,
        kind=st.sampled_from(["auto", "documents", "sentences"]),
        shuffle=st.booleans(),
        **batching_sizes,
    ),
    # what has a meaning for sentences alone
    st.builds(
        BatchingConfig,
        kind=st.just("sentences"),
        shuffle=st.just(True),
        bucket=st.booleans(),
        long_sentences=st.sampled_from(["keep", "cut", "split", "refuse"]),
        predict_first=st.booleans(),
        **batching_sizes,
    ),
    # for streams alone
    st.builds(
        BatchingConfig,
        kind=st.just("streams"),
        partial_shuffle=st.booleans(),
        length=st.integers(50, 2000),
        length_spread=st.floats(1e-9, 50),
        short_share=st.floats(0, 1),
        longest_over=maybe(st.integers(0, 2000)),
        batch_size=st.integers(1, 50).map(lambda groups: 12 * groups),
        group_size=maybe(st.sampled_from([1, 2, 3, 4, 6, 12])),
    ),
)
optimizer_fields: dict[str, Any] = {"lr": positive, "weight_decay": st.floats(0, 1e6), "clip": maybe(positive)}
plain_optimizers = {
    "optimizer": st.builds(OptimizerConfig, kind=st.sampled_from(["adam", "adagrad", "sgd"]), **optimizer_fields)
}
# what has a meaning with averages alone
averages: dict[str, Any] = {
    "optimizer": st.builds(
        lambda trigger, **fields: OptimizerConfig(kind="nt_asgd", **trigger, **fields),
        trigger=st.fixed_dictionaries({"nonmonotone": counts}) | st.fixed_dictionaries({"switch_after": counts}),
        lagged_rates=st.booleans(),
        **optimizer_fields,
    ),
    "finetune": st.just(FinetuneConfig())
    | st.builds(
        FinetuneConfig,
        stages=st.integers(1, 9),
        lr=maybe(positive),
        epochs=counts,
        nonmonotone=counts,
        adversarial=maybe(st.floats(0, 1)),
        input_noise=maybe(st.floats(0, 3)),
        last_latent_dropout=maybe(shares),
        partial_shuffle=maybe(st.booleans()),
    ),
    "epochs": st.integers(2001, 9999),  # after every switch
}
warmups = st.integers(0, 10**6)
training_fields: dict[str, Any] = dict(
    schedule=st.one_of(
        st.builds(ScheduleConfig, kind=st.just("constant"), warmup=warmups),
        st.builds(ScheduleConfig, kind=st.just("plateau"), factor=st.floats(1, 100), warmup=warmups),
        st.builds(ScheduleConfig, kind=st.just("step"), factor=st.floats(1, 100), full_epochs=counts, warmup=warmups),
    ),
    batching=batching_configs,
    loss=st.sampled_from(["mean", "time-sum"]),
    epochs=counts,
    patience=maybe(counts),
    start_from=maybe(names),
    seed=st.integers(0, 2**63 - 1),
    precision=st.sampled_from(["fp32", "bf16"]),
    device=st.sampled_from(["auto", "cpu", "cuda"]),
    activation_penalty=st.floats(0, 1e6),
    temporal_penalty=st.floats(0, 1e6),
    checkpoint_every=counts,
    log_every=counts,
)
held = {"start_from": names, "learns": st.just("memory")}
training_configs = st.one_of(
    *(
        st.builds(TrainingConfig, **{**training_fields, **kind, **learning})
        for kind in (plain_optimizers, averages)
        for learning in ({}, held)
    )
)
configs = st.builds(RunConfig, data=data_configs, model=model_configs, training=training_configs)


def test_the_strategies_leave_no_field_out() -> None:
    """A new kind or field must be added above."""
    from dataclasses import fields

    assert set(MEMORIES) == {
        "none",
        "key_value",
        "ngram",
        "recurrent_memory",
        "attentive",
        "pointer_sentinel",
        "span_buffer",
    }
    assert set(HEADS) == {"softmax", "mixture_of_softmaxes"}
    assert set(ENCODERS) == {"lstm", "variational_lstm", "awd_lstm", "rnn", "hornn"}
    known = {
        DataConfig: 8,
        ModelConfig: 12,
        LSTMConfig: 5,
        VariationalLSTMConfig: 9,
        AWDLSTMConfig: 6,
        RNNConfig: 4,
        HORNNConfig: 5,
        KeyValueConfig: 3,
        NGramConfig: 2,
        RecurrentMemoryConfig: 4,
        PointerSentinelConfig: 3,
        AttentiveConfig: 6,
        SpanBufferConfig: 10,
        GateConfig: 2,
        RewardConfig: 5,
        SoftmaxConfig: 8,
        MixtureOfSoftmaxesConfig: 9,
        OptimizerConfig: 7,
        FinetuneConfig: 8,
        ScheduleConfig: 4,
        BatchingConfig: 13,
        TrainingConfig: 16,
    }
    assert {config: len(fields(config)) for config in known} == known


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(config=configs)
def test_yaml_and_back(config: RunConfig, tmp_path_factory: pytest.TempPathFactory) -> None:
    text = config.to_yaml()
    path = tmp_path_factory.getbasetemp() / "config.yaml"
    path.write_text(text, encoding="utf-8")
    loaded = RunConfig.load(path)
    assert loaded == config
    assert loaded.to_yaml() == text
    assert type(loaded.model.memory) is type(config.model.memory)
    assert type(loaded.model.encoder) is type(config.model.encoder)
    assert RunConfig.from_tree(yaml.safe_load(text)) == config


@pytest.mark.parametrize("name", PRESETS)
def test_presets_survive(name: str) -> None:
    config = PRESETS[name].config
    assert RunConfig.from_tree(yaml.safe_load(config.to_yaml())) == config


def test_nothing_is_the_default() -> None:
    assert RunConfig.from_tree({}) == RunConfig()
    assert RunConfig.from_tree({"model": {}, "training": {"optimizer": {}}}) == RunConfig()


def test_what_is_left_out_has_its_default() -> None:
    config = RunConfig.from_tree({"model": {"memory": {"window": 9}}, "training": {"optimizer": {"clip": None}}})
    assert config.model.memory == KeyValueConfig(roles=3, window=9)
    assert config.training.optimizer == OptimizerConfig(clip=None)
    assert replace(config, model=ModelConfig(), training=TrainingConfig()) == RunConfig()


@pytest.mark.parametrize(
    ("tree", "path"),
    [
        ({"data": {"max_size": None, "dir": None}}, ("data", "max_size")),
        ({"model": {"encoder": {"forget_bias": None}}}, ("model", "encoder", "forget_bias")),
        ({"model": {"memory": {"kind": "attentive", "window": None}}}, ("model", "memory", "window")),
        (
            {"model": {"head": {"kind": "mixture_of_softmaxes", "latent_size": None}}},
            ("model", "head", "latent_size"),
        ),
        ({"model": {"memory": {"kind": "span_buffer", "attention_size": None}}}, ("model", "memory", "attention_size")),
        ({"training": {"patience": None}}, ("training", "patience")),
        ({"training": {"optimizer": {"clip": None}}}, ("training", "optimizer", "clip")),
    ],
    ids=str,
)
def test_null_survives(tree: dict[str, Any], path: tuple[str, ...]) -> None:
    value: Any = RunConfig.from_tree(RunConfig.from_tree(tree).to_tree()).to_tree()
    for name in path:
        value = value[name]
    assert value is None


def test_a_kind_brings_its_own_fields() -> None:
    assert RunConfig.from_tree({"model": {"memory": {"kind": "ngram"}}}).model.memory == NGramConfig(order=4)
    assert RunConfig.from_tree({"model": {"memory": {"kind": "none"}}}).model.memory == NoMemoryConfig()
    hornn = RunConfig.from_tree({"model": {"encoder": {"kind": "hornn", "pooling": "max"}}}).model.encoder
    assert hornn == HORNNConfig(pooling="max")
    with pytest.raises(InputError, match=r"unknown field model\.encoder\.layers"):
        RunConfig.from_tree({"model": {"encoder": {"kind": "hornn", "layers": 2}}})
    with pytest.raises(InputError, match=r"unknown field model\.memory\.window"):
        RunConfig.from_tree({"model": {"memory": {"kind": "ngram", "window": 5}}})
    with pytest.raises(InputError, match=r"unknown field model\.memory\.order"):
        RunConfig.from_tree({"model": {"memory": {"order": 5}}})


REFUSED = [
    "model.encoder.kind=hornn model.encoder.pooling=mean",
    "model.encoder.kind=hornn model.encoder.pooling=gated model.encoder.forgetting_factor=0.5",
    "model.memory.kind=recurrent_memory model.memory.composition=sum",
    "training=5",
    "training=null",
    "training.optimizer=adam",
    "training.epochs=many",
    "training.epochs=[3]",
    "training.loss=sum",
    "data.download=3",
    "data.corpus=5",
    "data.corpus=null",
    "training.epochs=0",
    "training.patience=0",
    "training.optimizer.lr=0.0",
    "training.optimizer.clip=-1.0",
    "training.optimizer.weight_decay=-1.0",
    "training.schedule.factor=0.5",
    "training.schedule.factor=1.5",
    "training.schedule.kind=plateau training.schedule.full_epochs=3",
    "training.schedule.full_epochs=0",
    "training.schedule.warmup=-1",
    "training.batching.length=0",
    "training.batching.bucket=true",
    "training.batching.kind=sentences training.batching.bucket=true",
    "training.batching.long_sentences=cut",
    "training.batching.kind=streams training.batching.predict_first=false",
    "training.batching.kind=sentences training.batching.long_sentences=trim",
    "training.batching.kind=auto training.batching.length_spread=5.0",
    "training.batching.kind=auto training.batching.short_share=0.05",
    "training.batching.kind=auto training.batching.partial_shuffle=true",
    "training.batching.kind=streams training.batching.longest_over=10",
    "training.batching.kind=streams training.batching.length_spread=5.0 training.batching.longest_over=-1",
    "training.batching.kind=streams training.batching.length_spread=-5.0",
    "training.batching.kind=streams training.batching.length=20 training.batching.length_spread=21.0",
    "training.batching.kind=streams training.batching.short_share=1.5",
    "training.batching.kind=streams training.batching.short_share=0.5 training.batching.length=4",
    "training.batching.kind=streams training.batching.shuffle=true",
    "training.batching.batch_size=15 training.batching.group_size=4",
    "training.batching.group_size=0",
    "training.optimizer.kind=sgd training.optimizer.nonmonotone=3",
    "training.optimizer.kind=sgd training.optimizer.switch_after=200",
    "training.optimizer.kind=sgd training.optimizer.lagged_rates=true",
    "training.optimizer.kind=nt_asgd training.optimizer.nonmonotone=0",
    "training.optimizer.kind=nt_asgd training.optimizer.switch_after=0",
    "training.finetune.stages=-1",
    "training.finetune.stages=1",
    "training.finetune.lr=0.0",
    "training.finetune.epochs=0",
    "training.finetune.nonmonotone=0",
    "training.optimizer.kind=nt_asgd training.optimizer.switch_after=2 training.optimizer.nonmonotone=3",
    "training.epochs=7 training.optimizer.kind=nt_asgd training.optimizer.switch_after=7",
    "training.activation_penalty=-1.0",
    "training.temporal_penalty=-1.0",
    "training.checkpoint_every=0",
    "training.log_every=0",
    "training.seed=9223372036854775808",
    "model.embedding_size=0",
    "model.memory.kind=span_buffer model.memory.buffer_size=20",
    "model.memory.kind=span_buffer model.memory.gate.training_temperature=0.0",
    "model.memory.kind=span_buffer model.output_dropout=0.4",
    "model.input_dropout=1.0",
    "model.output_dropout=-0.1",
    "model.embedding_dropout=1.0",
    "model.encoder.kind=variational_lstm model.encoder.input_dropout=1.0",
    "model.encoder.kind=variational_lstm model.encoder.recurrent_dropout=1.0",
    "model.encoder.kind=variational_lstm model.encoder.zoneout_h=1.0",
    "model.encoder.kind=variational_lstm model.encoder.zoneout_c=1.0",
    "model.encoder.kind=awd_lstm model.encoder.hidden_dropout=1.0",
    "model.encoder.kind=awd_lstm model.encoder.weight_drop=1.0",
    "model.encoder.kind=awd_lstm model.encoder.hidden_size=0",
    "model.encoder.kind=awd_lstm model.encoder.layers=0",
    "model.encoder.kind=awd_lstm model.encoder.last_size=0",
    "model.head.kind=mixture_of_softmaxes model.head.experts=0",
    "model.head.kind=mixture_of_softmaxes model.head.latent_size=0",
    "model.head.kind=mixture_of_softmaxes model.head.latent_dropout=1.0",
    "model.head.kind=softmax model.head.adversarial=-0.1",
    "model.head.kind=mixture_of_softmaxes model.head.adversarial=-0.1",
    "model.head.adversarial_direction=any",
    "model.head.adversarial_gate=sine",
    "model.head.projection_penalty=0.1",
    "model.head.projection=true model.head.projection_penalty=-1.0",
    "model.init_range=0.0",
    "model.encoder.hidden_size=0",
    "model.encoder.layers=0",
    "model.encoder.dropout=1.0",
    "model.memory.roles=4",
    "model.memory.window=0",
    "model.memory.kind=attentive model.memory.window=0",
    "model.memory.kind=attentive model.memory.score=dot",
    "model.memory.kind=attentive model.memory.merge=sum",
    "model.memory.kind=ngram model.memory.order=1",
    "data.min_count=0",
    "data.max_size=2",
    "data.documents=page",
    "training.epochs=null",
    "training.optimizer.lr=null",
    "model.embedding_size=null",
    "model.memory.window=null",
]
"""The last field of each line cannot have its value, or not beside the others."""


@pytest.mark.parametrize("fields", REFUSED)
def test_errors_name_file_field_and_value(fields: str) -> None:
    tree: dict[str, Any] = {}
    for field in fields.split():
        name, _, value = field.partition("=")
        *groups, last = name.split(".")
        group = tree
        for inner in groups:
            group = group.setdefault(inner, {})
        group[last] = yaml.safe_load(value)
    with pytest.raises(InputError) as error:
        RunConfig.from_tree(tree, "my.yaml")
    assert str(error.value).startswith(f"my.yaml: {fields.split()[-1]}: must ") and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"trainin": {}}, "unknown field trainin. Did you mean 'training'?"),
        ({"training": {"optimizer": {"rl": 3}}}, "unknown field training.optimizer.rl. Did you mean 'lr'?"),
        ({"model": {"memory": {"kind": "keyvalue"}}}, "model.memory.kind=keyvalue: unknown. Did you mean 'key_value'?"),
        ({"model": {"memory": {"kind": None}}}, "model.memory.kind=null: unknown."),
        ({"model": {"head": {"kind": "mos"}}}, "model.head.kind=mos: unknown. Choose from: softmax"),
        (
            {"model": {"memory": {"kind": "span_buffer", "reward": {"wait": 1.0}}}},
            "unknown field model.memory.reward.wait. Did you mean 'weight'?",
        ),
        ({"data": {"corpus": ""}}, "data.corpus='': must be a corpus name"),
        *(
            ({"training": {"finetune": {name: 0.5}}}, "training.finetune.stages=0: nothing is finetuned")
            for name in ("lr", "adversarial", "input_noise", "last_latent_dropout")
        ),
        ({"training": {"finetune": {"epochs": 20}}}, "training.finetune.stages=0: nothing is finetuned"),
        ({"training": {"finetune": {"partial_shuffle": False}}}, "training.finetune.stages=0: nothing is finetuned"),
    ],
    ids=str,
)
def test_errors_name_what_is_meant(tree: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=f"^{re.escape(f'my.yaml: {message}')}"):
        RunConfig.from_tree(tree, "my.yaml")


@pytest.mark.parametrize("tree", [[], "text", 5, ["data"]], ids=str)
def test_what_is_no_tree_is_refused(tree: Any) -> None:
    with pytest.raises(InputError) as error:
        RunConfig.from_tree(tree, "my.yaml")
    assert str(error.value) == f"my.yaml: the configuration={tree}: must be a group of fields"


@pytest.mark.parametrize("tree", [["data"] * 1000, "data\n" * 1000], ids=["list", "text"])
def test_a_long_value_is_shown_in_part(tree: Any) -> None:
    with pytest.raises(
        InputError, match=r"^my\.yaml: the configuration=.*data.*…: must be a group of fields$"
    ) as error:
        RunConfig.from_tree(tree, "my.yaml")
    assert len(str(error.value)) < 130


def test_an_empty_file_is_the_default(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("# nothing\n")
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


def test_what_is_nested_too_deeply_is_refused(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("[" * 3_000)
    with pytest.raises(InputError, match=r"c\.yaml: is nested too deeply"):
        RunConfig.load(tmp_path / "c.yaml")


def _parse(kinds: dict[str, str], *options: str) -> RunConfig:
    parser = config_parser(kinds)
    return parsed_config(parser, parser.parse_args(list(options)))


def test_options_are_typed() -> None:
    kinds = kinds_of({})
    config = _parse(kinds, "--training.optimizer.lr=1e-3", "--training.patience=null", "--data.corpus=5")
    assert (config.training.optimizer.lr, config.training.patience, config.data.corpus) == (0.001, None, "5")
    assert _parse(kinds, "--data.max_size=null", "--training.optimizer.clip=2").training.optimizer.clip == 2.0
    assert _parse(kinds_of({"model": {"memory": {"kind": "ngram"}}})).model.memory == NGramConfig()
    assert _parse(kinds) == RunConfig()


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_reached_by_options(name: str) -> None:
    """Every field has an option that means it."""
    tree = PRESETS[name].config.to_tree()

    def flat(value: Any, prefix: str) -> list[str]:
        if isinstance(value, dict):
            return [
                option for key, inner in value.items() for option in flat(inner, f"{prefix}.{key}" if prefix else key)
            ]
        text = "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
        return [f"--{prefix}={text}"]

    assert _parse(kinds_of(tree), *flat(tree, "")) == PRESETS[name].config


@pytest.mark.parametrize(
    ("content", "what"),
    [
        ("a: &a [1]\nb: *a\n", "line 1: an alias or an anchor"),
        ("data: {corpus: x}\ntraining: {<<: {seed: 1}}\n", "line 2: a merge"),
        (f"training:\n  seed: {'9' * 4000}\n", "line 2: a number of more than 20 digits"),
        (f"training:\n  seed: 0x{'f' * 20_000}\n", "line 2: a number"),
        (f"training:\n  seed: 1{':1' * 100}\n", "line 2: a number"),
        (f"data: [{'0,' * 10_001}]", "more than 10,000 values"),
        (f"# {'x' * 2**20}", "must have at most 1,048,576"),
    ],
    ids=lambda text: text[:20],
)
def test_what_grows_is_no_configuration(tmp_path: Path, content: str, what: str) -> None:
    (tmp_path / "c.yaml").write_text(content)
    with pytest.raises(InputError, match=re.escape(what)) as error:
        RunConfig.load(tmp_path / "c.yaml")
    assert len(str(error.value)) < 300


def test_words_of_digits_in_quotes_are_words(tmp_path: Path) -> None:
    config = RunConfig(data=DataConfig(corpus="1" * 40, dir="0x" + "f" * 40))
    (tmp_path / "c.yaml").write_text(config.to_yaml())
    assert RunConfig.load(tmp_path / "c.yaml") == config


OLD_SPANS: dict[str, Any] = {
    "kind": "span_buffer",
    "buffer_size": 2048,
    "span_length": 8,
    "span_offset": "literal",
    "words": False,
    "grid": "sliding",
    "newest": "before",
    "before_stream": "masked",
    "attention_size": None,
    "score": "tanh",
    "biases": False,
    "gate_range": None,
    "kept": "raw",
    "own_segment_gradients": True,
    "dropout": 0.4,
    "penalised": False,
    "training_temperature": 100.0,
    "annealed_temperature": None,
    "annealing_epochs": None,
    "evaluation_temperature": 0.1,
    "reward": 0.1,
    "reward_power": 5.0,
    "reward_most": 10.0,
    "reward_base": 1.0,
    "reward_slope": 3.0,
    "negative_reward": "literal",
    "rewarded": "adversarial",
    "reward_teaches": "all",
    "reward_gate": "plain",
    "reward_constant": True,
}
"""The memory of `li2020/mos-snb-ptb` as spanlm 0.1.0 wrote it."""


def old_tree() -> dict[str, Any]:
    tree = PRESETS["li2020/mos-snb-ptb"].config.to_tree()
    return {
        **tree,
        "model": {**tree["model"], "memory": OLD_SPANS, "head": {**tree["model"]["head"], "buffer": "mixture"}},
    }


def test_a_configuration_of_010_is_read_and_is_the_same_run() -> None:
    """Its files carry a digest of the fields as they were called, to the last of them."""
    config = RunConfig.from_tree(old_tree())
    assert config == PRESETS["li2020/mos-snb-ptb"].config
    fields = {name: "any" if name in CHANGEABLE else value for name, value in flat(old_tree()).items()}
    finetune = {name: value for name, value in fields.items() if name.startswith("training.finetune.")}

    def digest(part: dict[str, Any]) -> str:
        told = {name: value for name, value in part.items() if value is not None or name in OPTIONAL}
        told = {name: int(x) if isinstance(x, float) and x.is_integer() else x for name, x in told.items()}
        return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()

    expected = f"{digest(fields | dict.fromkeys(finetune, 'any'))} {digest(finetune)}"
    assert config_digest(config.to_tree()) == expected


def test_fields_of_010_are_read_over_a_preset_and_as_options(tmp_path: Path) -> None:
    base = PRESETS["li2020/awd-snb-ptb"].config
    memory = replace(
        base.model.memory, reward=RewardConfig(weight=0.5, slope=2.0), gate=GateConfig(training_temperature=7.0)
    )
    expected = replace(base, model=replace(base.model, memory=memory))
    path = tmp_path / "a.yaml"
    path.write_text("model: {memory: {reward: 0.5, reward_slope: 2.0, training_temperature: 7.0, grid: sliding}}")
    assert named_config("li2020/awd-snb-ptb", path) == expected
    old = ["--model.memory.reward=0.5", "--model.memory.reward_slope", "2", "--model.memory.grid", "sliding"]
    assert with_options(base, [*old, "--model.memory.training_temperature", "7"]) == expected
    new = ["--model.memory.reward.weight=0.5", "--model.memory.reward.slope", "2"]
    assert with_options(base, [*new, "--model.memory.gate.training_temperature", "7"]) == expected


@pytest.mark.parametrize(
    ("part", "name", "value"),
    [
        ("memory", "grid", "fixed"),
        ("memory", "biases", True),
        ("memory", "gate_range", 0.1),
        ("head", "buffer", "projection"),
    ],
)
def test_what_is_gone_is_refused_with_the_version_that_has_it(part: str, name: str, value: Any) -> None:
    tree, written = old_tree(), str(value).lower() if value is True else str(value)
    tree["model"][part] = {**tree["model"][part], name: value}
    said = rf"model\.{part}\.{name}={written}: was an option of spanlm 0\.1\.0, and this version has"
    with pytest.raises(InputError, match=rf"^a\.yaml: {said}"):
        RunConfig.from_tree(tree, "a.yaml")
    for options in ([f"--model.{part}.{name}={written}"], [f"--model.{part}.{name}", written]):
        with pytest.raises(InputError, match=f"^{said}"):
            with_options(PRESETS["li2020/mos-snb-ptb"].config, options)
