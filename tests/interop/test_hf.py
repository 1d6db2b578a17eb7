"""A model of `transformers` is the model of the run: any cut, any padding, beams, files, surprisal."""

import json
import math
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.testing import assert_close

import spanlm
from spanlm.config import RunConfig, flat
from spanlm.data.config import WordRule as Rule
from spanlm.data.tokenizer import OTHER_SPACE, UNSEEN, tokenize, written_words
from spanlm.data.vocabulary import EOS, UNK, Vocabulary
from spanlm.errors import InputError, installation
from spanlm.models.counting import count_parameters
from spanlm.models.interfaces import LMState, Readout
from tests.cases import rest_slow
from tests.data.test_subwords import LINES as SUBWORD_LINES
from tests.data.test_subwords import TOKENIZERS
from tests.goldens.small import command, shrunk
from tests.interop.equalities import BOUND, cut, farthest, padded, same_beams, side_by_side

transformers = pytest.importorskip("transformers", reason="needs the extra hf")
from spanlm.interop import hf  # noqa: E402 - needs transformers

QUICK = (
    "daniluk2017/kvp-w5",
    "daniluk2017/gated-hornn-3",
    "daniluk2017/4-gram",
    "daniluk2017/rm-w5",
    "salton2017/combined-ptb",
    "merity2017/pointer-ptb",
    "li2020/mos-ps-at-snb-ptb",
)
WORDS = ("the", "cat", "sat", "on", "a", "mat", ".", "dog", EOS, UNK)


def wrapped(name: str, **memory: Any) -> Any:
    """A published row in small, not trained, in evaluation mode; `memory`: other fields of its memory."""
    torch.manual_seed(1)
    config = shrunk(name, "text").model
    config = replace(config, memory=replace(config.memory, **memory))
    made = hf.SpanlmForCausalLM(
        hf.SpanlmConfig(
            run={"model": spanlm.RunConfig(model=config).to_tree()["model"]},
            vocab_size=len(WORDS),
            eos_token_id=8,
            pad_token_id=8,
            bos_token_id=8,
        )
    )
    return made.eval()


KINDS = {tuple(flat(preset.config.to_tree())): name for name, preset in reversed(spanlm.PRESETS.items())}
"""A preset for each set of fields; `results/interop.py` takes them all."""
NAMES = rest_slow([*QUICK, *(name for name in KINDS.values() if name not in QUICK)], always=len(QUICK))


@pytest.mark.parametrize("name", NAMES)
@torch.no_grad()
def test_cuts_padding_and_beams_change_nothing(name: str) -> None:
    model = wrapped(name)
    ids = torch.randint(0, 8, (3, 9), generator=torch.Generator().manual_seed(2))
    assert_close(model(ids).logits.exp().sum(-1), torch.ones(3, 9))
    assert cut(model, ids) <= BOUND
    assert padded(model, ids, left=True) <= BOUND
    assert padded(model, ids, left=False) <= BOUND
    assert same_beams(model, ids)


@pytest.mark.parametrize("name", NAMES)
@torch.no_grad()
def test_a_saved_model_is_the_same_to_the_bit(name: str, tmp_path: Path) -> None:
    model = wrapped(name)
    model.save_pretrained(tmp_path)
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    ids = torch.arange(8)[None]
    assert torch.equal(again(ids).logits, model(ids).logits)
    assert count_parameters(again.model) == count_parameters(model.model)


@torch.no_grad()
def test_generation_goes_on_from_a_state_and_rows_from_their_own_words(tmp_path: Path) -> None:
    model = wrapped("daniluk2017/kvp-w5")
    ids = torch.randint(0, 8, (2, 6), generator=torch.Generator().manual_seed(3))
    save_file(model(ids[:, :5]).state.flat(), tmp_path / "state.safetensors")
    state = LMState.from_flat(load_file(tmp_path / "state.safetensors"))
    mask = torch.ones_like(ids)
    mask[1, :3] = 0
    for more in ({}, {"num_beams": 3, "num_return_sequences": 2}):
        how = {"max_new_tokens": 5, "eos_token_id": None, **more}
        after = model.generate(ids[:, 5:], state=state, **how)
        assert torch.equal(after[:, 1:], model.generate(ids, **how)[:, 6:])
        rows = len(after) // 2
        both = model.generate(ids.where(mask.bool(), 9), attention_mask=mask, **how)
        assert torch.equal(both[:rows], model.generate(ids[:1], **how))
        assert torch.equal(both[rows:, 3:], model.generate(ids[1:, 3:], **how))
    drawn = []
    for cached in (True, False):
        torch.manual_seed(1)
        how = {"do_sample": True, "num_return_sequences": 3, "max_new_tokens": 5, "eos_token_id": None}
        drawn.append(model.generate(ids, use_cache=cached, **how))
    assert torch.equal(*drawn)
    with pytest.raises(InputError, match="of 2 rows, and input_ids has 1"):
        model(ids[:1], state=state)


def test_rows_padded_on_the_right_go_on_from_their_last_words(run: spanlm.TrainedModel) -> None:
    model, tokenizer = spanlm.to_hf(run)
    prompts = ["the cat sat on", "a dog"]
    batch = tokenizer(prompts, padding=True, return_tensors="pt", padding_side="right")
    several = model.generate(**batch, max_new_tokens=5, do_sample=False)[:, -5:]
    for row, prompt in zip(several, prompts, strict=True):
        alone = model.generate(**tokenizer(prompt, return_tensors="pt"), max_new_tokens=5, do_sample=False)
        assert row.tolist() == alone[0, -5:].tolist()


def test_what_is_saved_again_is_found_by_its_code(run: spanlm.TrainedModel, tmp_path: Path) -> None:
    command("export", run.folder, "--to", "hf", "--out", tmp_path / "first")
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "first")
    for kind in (type(again), type(again.config)):
        kind.register_for_auto_class()  # as trust_remote_code=True does
    again.save_pretrained(tmp_path / "second")
    first, second = ({path.name for path in (tmp_path / name).iterdir()} for name in ("first", "second"))
    assert "modeling_spanlm.py" in second and second < first


def test_a_pipeline_puts_words_behind_the_prompt(run: spanlm.TrainedModel) -> None:
    model, tokenizer = spanlm.to_hf(run)
    pipeline = transformers.pipeline("text-generation", model=model, tokenizer=tokenizer)
    (found,) = pipeline("the cat", max_new_tokens=3, do_sample=False)
    ids = model.generate(tokenizer("the cat", return_tensors="pt").input_ids, max_new_tokens=3, do_sample=False)
    words = [word for word in tokenizer.convert_ids_to_tokens(ids[0]) if word not in (EOS, UNK)]
    assert found["generated_text"].split() == words
    drawn = [word for word in run.generate("the cat", length=3, top_k=1) if word not in (EOS, UNK)]
    assert words == ["the", "cat", *drawn], "the prompt is opened as `spanlm generate` opens it"


def test_a_classifier_learns_and_is_saved(tmp_path: Path) -> None:
    """From the weights of a language model: which of two words the text has, four words before its end."""
    model = wrapped("daniluk2017/kvp-w5")
    model.save_pretrained(tmp_path / "model")
    settings: dict[str, Any] = {"num_labels": 2}
    torch.manual_seed(2)
    classifier = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "model", **settings)
    assert torch.equal(classifier.model.embedding.weight, model.model.embedding.weight)
    assert 0 < float(classifier.score.weight.detach().std()) < 0.1, "drawn, and not what was in memory"
    ids = torch.randint(2, 8, (16, 7), generator=torch.Generator().manual_seed(5))
    ids[:, 2] = labels = torch.arange(16) % 2
    optimizer = torch.optim.Adam([x for x in classifier.parameters() if x.requires_grad], 0.02)
    for _ in range(40):
        output = classifier(ids, labels=labels)
        optimizer.zero_grad()
        output.loss.backward()
        optimizer.step()
    classifier.eval()
    output = classifier(ids, labels=labels)
    assert torch.equal(output.logits.argmax(-1), labels)
    assert_close(output.loss, torch.nn.functional.cross_entropy(output.logits, labels))
    classifier.save_pretrained(tmp_path / "classifier")
    again = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "classifier")
    assert torch.equal(again(ids).logits, output.logits) and again.config.num_labels == 2


@torch.no_grad()
def test_a_classifier_reads_the_last_word_of_each_row() -> None:
    language = wrapped("daniluk2017/kvp-w5")
    torch.manual_seed(1)
    model = hf.SpanlmForSequenceClassification(language.config).eval()
    ids = torch.randint(0, 9, (3, 8), generator=torch.Generator().manual_seed(2))  # <eos>, the padding, is a word, too
    rows = [row[: len(row) - 3 * number] for number, row in enumerate(ids)]
    alone = torch.cat([model(row[None]).logits for row in rows])
    for left in (True, False):
        assert farthest(model(*side_by_side(rows, 8, left)).logits, alone) <= BOUND
    hidden = hf.SpanlmForCausalLM(language.config).eval()
    hidden.model.load_state_dict(model.model.state_dict())
    assert_close(alone[0], model.score(hidden(ids[:1], output_hidden_states=True).hidden_states[-1][0, -1]))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # the library's own warnings
def test_a_trainer_trains_and_predicts(tmp_path: Path) -> None:
    pytest.importorskip("accelerate", reason="what a Trainer needs")
    model = wrapped("daniluk2017/kvp-w5")
    ids = torch.randint(0, 8, (4, 6), generator=torch.Generator().manual_seed(4))
    data = [{"input_ids": row, "labels": row} for row in ids]
    how = {"report_to": [], "use_cpu": True, "save_strategy": "no", "disable_tqdm": True, "max_steps": 3}
    arguments = transformers.TrainingArguments(str(tmp_path), learning_rate=0.1, **how)
    trainer = transformers.Trainer(model, arguments, train_dataset=data, eval_dataset=data)
    before = trainer.predict(data)
    assert before.predictions.shape == (4, 6, len(WORDS))
    trainer.train()
    assert trainer.evaluate()["eval_loss"] < before.metrics["test_loss"]


def test_surprisal_loss_and_words_are_those_of_the_run(run: spanlm.TrainedModel) -> None:
    model, tokenizer = spanlm.to_hf(run)
    text = "the cat sat on the mat .\nzebra said N"
    ids = tokenizer(text, return_tensors="pt").input_ids
    scores = list(run.score(text, state="carry", base=math.e, eos=True))[:-1]
    assert tokenizer.convert_ids_to_tokens(ids[0, 1:]) == [UNK if row.oov else row.word for row in scores]
    with torch.no_grad():
        output = model(ids, labels=ids)
    own = -output.logits[0, :-1].gather(-1, ids[0, 1:, None]).squeeze(-1)
    assert own.tolist() == pytest.approx([row.surprisal for row in scores], abs=1e-6)
    assert_close(output.loss, own.mean())
    some = ids.clone()
    some[0, :5] = hf.IGNORED
    assert_close(model(ids, labels=some).loss, own[4:].mean())
    for left in (True, False):
        rows, masks = side_by_side([ids[0], ids[0, :4]], tokenizer.pad_token_id, left)
        assert_close(model(rows, masks, labels=rows).loss, torch.cat([own, own[:3]]).mean())


def test_attention_is_that_of_the_run(run: spanlm.TrainedModel) -> None:
    model, tokenizer = spanlm.to_hf(run)
    text = "the cat sat on the mat ."
    record = run.attend(text)
    ids = tokenizer(text, return_tensors="pt").input_ids
    with torch.no_grad():
        weights = model(ids, output_attentions=True).attentions
    assert weights[0].shape == (1, 1, ids.shape[1], record.window)
    assert_close(weights[0][0, 0, : len(record)], torch.tensor(record.weights))
    (square,) = model.square_attentions(weights)
    for word in range(ids.shape[1]):
        for other in range(ids.shape[1]):
            column = record.window - 1 + model.nearest_lag - (word - other)
            expected = weights[0][0, 0, word, column] if 0 <= column < record.window else 0.0
            assert float(square[0, 0, word, other]) == float(expected)


@pytest.mark.parametrize("name", NAMES)
@torch.no_grad()
def test_a_hole_in_the_mask_is_not_read(name: str) -> None:
    model, ids = wrapped(name), torch.randint(0, 8, (2, 6), generator=torch.Generator().manual_seed(2))
    for columns in ([0, 1, 4, 5], [2, 3], []):
        mask = torch.zeros_like(ids)
        mask[:, columns] = 1
        found = model(ids, attention_mask=mask, output_hidden_states=True)
        assert [x.shape[:2] for x in (found.logits, *found.hidden_states)] == 4 * [ids.shape]
        for values in (found.logits, *found.hidden_states):
            assert not values[~mask.bool()].any()
        if columns:
            assert farthest(found.logits[:, columns], model(ids[:, columns]).logits) < BOUND


@torch.no_grad()
def test_hidden_states_are_the_words_the_encoders_output_and_what_the_head_reads() -> None:
    model, ids = wrapped("daniluk2017/kvp-w5"), torch.tensor([[0, 1, 2, 3]])
    output = model(ids, output_hidden_states=True)
    words, encoded, features = output.hidden_states
    assert torch.equal(words, model.get_input_embeddings()(ids))
    assert torch.equal(encoded[:, -1], output.state.encoder["h"][-1])
    assert torch.equal(model.model.head.log_probs(Readout(features)), output.logits)
    how = {"output_hidden_states": True, "return_dict_in_generate": True}
    steps = model.generate(ids, max_new_tokens=2, eos_token_id=None, **how).hidden_states
    assert [[x.shape[1] for x in step] for step in steps] == [[4, 4, 4], [1, 1, 1]]


@pytest.mark.parametrize("name", ["attention_mask", "labels", "input_ids"])
def test_other_shapes_are_refused_by_name(name: str) -> None:
    ids = torch.tensor([[0, 1, 2], [3, 4, 5]])
    for shape in ((2, 0), (0, 3), (3,)) if name == "input_ids" else ((2, 4), (2, 2), (1, 3), (3, 3), (6,)):
        with pytest.raises(InputError, match=f"^{name}="):
            wrapped("daniluk2017/lstm")(**{"input_ids": ids, name: ids.new_zeros(shape)})


def test_generation_ends_at_a_string_of_the_text(run: spanlm.TrainedModel) -> None:
    """A part of a word, a word, or several, in each row by itself."""
    model, tokenizer = spanlm.to_hf(run)
    prompts = tokenizer(["the cat sat", "a dog"], return_tensors="pt", padding=True, padding_side="left")
    start, most = prompts.input_ids.shape[1], 12
    how: dict[str, Any] = {**prompts, "tokenizer": tokenizer, "max_new_tokens": most, "eos_token_id": None}
    whole = model.generate(**how, do_sample=False)[:, start:]
    first, second, third, *_ = tokenizer.decode(whole[0]).split()
    for string in (f"{first} {second} {third}", f"{second} ", second[:2], f" {first}", "never there"):
        texts = [[tokenizer.decode(row[:end]) for end in range(1, most + 1)] for row in whole]
        ends = [next((end for end, text in enumerate(row, 1) if string in text), most) for row in texts]
        found = model.generate(**how, do_sample=False, stop_strings=["not this", string])
        assert found.shape[1] == start + max(ends)
    assert model.generate(**how, num_beams=3, stop_strings=" ").shape[1] == start + 1
    with pytest.raises(ValueError, match="tokenizer"):
        model.generate(**{**how, "tokenizer": None}, stop_strings=" ")


def test_half_precision_is_refused_with_what_to_do() -> None:
    model, ids = wrapped("daniluk2017/kvp-w5"), torch.zeros(1, 2, dtype=torch.long)
    assert model.double()(ids).logits.dtype == torch.float64
    with pytest.raises(InputError, match=r"dtype=bfloat16: .* use torch.autocast"):
        model.bfloat16()(ids)


def test_a_model_without_attention_says_so() -> None:
    with pytest.raises(InputError, match="attends to nothing"):
        wrapped("daniluk2017/lstm")(torch.zeros(1, 2, dtype=torch.long), output_attentions=True)


def _comparable(text: str) -> bool:
    """Whether no <eos> is in it, and something is seen of every word."""
    seen = UNSEEN.sub("", text)
    return EOS not in seen and all(UNSEEN.sub("", OTHER_SPACE.sub("", word)) for word in written_words(text))


LETTERS = "aΣ zé'’.,-N1½_\t <>unkeos\u0301\u200dİ猫\"$%(!)\u00a0\u00ad\u200b\u3000"
TEXTS = st.text(st.sampled_from(LETTERS)).filter(_comparable)


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["whitespace", "words", "straight-words"])
@settings(max_examples=300)
@given(lines=st.lists(TEXTS, min_size=1, max_size=3))
def test_words_are_cut_as_in_training(rule: Rule, lines: list[str]) -> None:
    expected = [word for line in lines for word in [*tokenize(line, rule), EOS]][:-1]
    words = list(dict.fromkeys([EOS, UNK, *expected]))
    tokenizer = hf.tokenizer_of(Vocabulary(tuple(words)), rule)
    ids = [tokenizer("\n".join(lines), add_special_tokens=opens).input_ids for opens in (True, False)]
    assert [tokenizer.convert_ids_to_tokens(row) for row in ids] == [[EOS, *expected], expected]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["characters", "bytes", "bpe", "unigram"])
@settings(max_examples=100)
@given(lines=st.lists(SUBWORD_LINES.filter(lambda line: EOS not in line), min_size=1, max_size=3))
def test_tokens_below_the_word_have_their_ids(kind: Any, lines: list[str]) -> None:
    tokenizer = TOKENIZERS[kind]
    vocabulary = tokenizer._vocabulary
    fast = hf.tokenizer_of(vocabulary, kind)
    text = "\n".join(lines)
    ids = tokenizer.encode(text.encode()).tolist()
    assert fast(text, add_special_tokens=False).input_ids == ids
    assert fast(text).input_ids == [vocabulary.eos_id, *ids]
    assert fast.decode(ids).replace(EOS, "\n") == text


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["characters", "bytes", "bpe", "unigram"])
def test_an_exported_run_below_the_word_has_its_words_as_a_yardstick(
    kind: Any, tiny_config: RunConfig, tmp_path: Path
) -> None:
    size = 300 if kind in ("bpe", "unigram") else None
    data = replace(tiny_config.data, tokenizer=kind, vocabulary_size=size)
    config = replace(tiny_config, data=data, training=replace(tiny_config.training, epochs=1))
    spanlm.train(config, spanlm.load_corpus(config.data), tmp_path / "run")
    model = spanlm.load(tmp_path / "run", "cpu")
    hf.export(model, tmp_path / "hf")
    yardstick = spanlm.load(f"hf:{tmp_path / 'hf'}", "cpu")
    lines = [line for line in model.corpus(split="test").written_lines("test") if line]
    for ours, theirs in zip(model.score_items(lines, eos=True), yardstick.score_items(lines, eos=True), strict=True):
        assert [word.surprisal for word in theirs] == pytest.approx([word.surprisal for word in ours], abs=1e-4)
    fast = transformers.AutoTokenizer.from_pretrained(tmp_path / "hf")
    ids = [model.vocabulary.encode(model.tokenize(line)) for line in lines]
    assert [fast(line).input_ids for line in lines] == [[model.vocabulary.eos_id, *row] for row in ids]


@pytest.mark.slow
def test_the_verb_writes_a_folder_that_another_process_reads(run: spanlm.TrainedModel, tmp_path: Path) -> None:
    command("export", run.folder, "--to", "hf", "--out", tmp_path / "out")
    assert len({path.stat().st_mode for path in (tmp_path / "out").iterdir()}) == 1, "others read it as a whole"
    program = (
        "import sys, torch, transformers as t; folder = sys.argv[1]; "
        "model = t.AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True); "
        "words = t.AutoTokenizer.from_pretrained(folder)('the cat sat', return_tensors='pt'); "
        "print(float(model(words.input_ids).logits.double().sum()))"
    )
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_MODULES_CACHE": str(tmp_path / "modules")}
    command_line = [sys.executable, "-c", program, str(tmp_path / "out")]
    found = subprocess.run(command_line, env=environment, capture_output=True, text=True, check=True).stdout
    model, tokenizer = spanlm.to_hf(run)
    expected: Tensor = model(tokenizer("the cat sat", return_tensors="pt").input_ids).logits.double().sum()
    assert float(found) == pytest.approx(expected.item(), abs=1e-3)


def test_the_hub_reads_the_card_of_an_export(run: spanlm.TrainedModel, tmp_path: Path) -> None:
    hub = pytest.importorskip("huggingface_hub")
    hf.export(run, tmp_path / "out")
    card = hub.ModelCard.load(tmp_path / "out/README.md")
    assert (card.data.library_name, card.data.license) == ("transformers", None)
    (result,) = card.data.eval_results
    (own,) = hub.ModelCard.load(run.folder / "README.md").data.eval_results
    assert result == own and result.metric_type == "perplexity" and result.dataset_split == "validation"
    assert "the tokenizer puts `<eos>` before a text" in " ".join(card.text.split())
    hf.export(run.with_attention("window=2"), tmp_path / "changed")
    assert "No number is recorded for these weights." in hub.ModelCard.load(tmp_path / "changed/README.md").text


def test_what_cannot_be_exported_is_refused(run: spanlm.TrainedModel, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="name one run"):
        hf.to_hf(spanlm.TrainedEnsemble([run, run]))
    (tmp_path / "there").write_text("")
    with pytest.raises(InputError, match="not empty"):
        hf.export(run, tmp_path)
    with pytest.raises(InputError, match="spanlm export"):
        hf.SpanlmForCausalLM(hf.SpanlmConfig())


@pytest.mark.slow
def test_an_extra_that_is_missing_is_named_with_its_install_line(run: spanlm.TrainedModel, tmp_path: Path) -> None:
    program = (
        "import json, sys; sys.modules['transformers'] = sys.modules['tensorboard'] = None; "
        "from spanlm.cli.main import main; print([main(words) for words in json.loads(sys.argv[1])])"
    )
    out = str(tmp_path / "out")
    commands = [
        ["export", str(run.folder), "--out", out],
        ["score", f"hf:{out}", "-"],
        ["train", "demo", "--out", out, "--track", "tensorboard"],
    ]
    command_line = [sys.executable, "-c", program, json.dumps(commands)]
    found = subprocess.run(command_line, capture_output=True, text=True, check=False)
    assert found.stdout == "[2, 2, 2]\n"
    for line, extra in zip(found.stderr.splitlines(), ("hf", "hf", "track"), strict=True):
        assert line.endswith(installation(extra))
    assert not (tmp_path / "out").exists()


def nll(model: spanlm.TrainedModel, text: str) -> tuple[float, float]:
    """Nats of a text's words by `score`, and by the exported model."""
    exported, tokenizer = spanlm.to_hf(model)
    ids = tokenizer(text, return_tensors="pt").input_ids
    with torch.no_grad():
        theirs = float(exported(ids, labels=ids).loss) * (ids.shape[1] - 1)
    return sum(word.surprisal for word in model.score(text, base=math.e)), theirs


def test_a_changed_model_is_exported_as_it_is_asked(run: spanlm.TrainedModel, span_run: Path) -> None:
    """With another temperature of its gate, or a narrower window; other lesions are not in weights."""
    spans, words, text = (
        spanlm.load(span_run),
        spanlm.load(run.folder),
        "the cat sat on a mat . the dog sat on the mat .",
    )
    assert isinstance(spans, spanlm.TrainedModel) and isinstance(words, spanlm.TrainedModel)
    with torch.no_grad():  # so little trained, a model looks at all words alike
        for weight in [*spans.model.parameters(), *words.model.parameters()]:
            weight.mul_(8)
    changed = [spans.at_gate_temperature(np.float32(0.001)), words.with_attention("window=2")]
    for model, trained in zip(changed, (spans, words), strict=True):
        ours, theirs = nll(model, text)
        assert theirs == pytest.approx(ours, rel=1e-5)
        assert abs(theirs - nll(trained, text)[0]) > 1e-4
    for how in ("uniform", "none"):
        with pytest.raises(InputError, match=rf"attention={how}: .* Export the run as trained"):
            spanlm.to_hf(run.with_attention(how))


@pytest.mark.slow
@pytest.mark.parametrize("kilobytes", [1, 3])
def test_nothing_is_left_of_an_export_that_the_disk_refused(
    run: spanlm.TrainedModel, tmp_path: Path, kilobytes: int
) -> None:
    (tmp_path / "room").mkdir()
    export = f'"{sys.executable}" -m spanlm export "{run.folder}" --to hf --out "{tmp_path}/room/out"'
    limited = ["bash", "-c", f"ulimit -f {kilobytes}; {export}"]
    found = subprocess.run(limited, capture_output=True, text=True, check=False)
    assert found.returncode == 1 and found.stderr.count("\n") == 1 and "too large" in found.stderr
    assert not list((tmp_path / "room").iterdir())
