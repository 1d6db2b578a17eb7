"""A model of sub-words by written word: a brute-force sum over what transformers says, and a run that was exported."""

import contextlib
import itertools
import json
import math
import shutil
from dataclasses import astuple
from pathlib import Path
from typing import Any

import pytest
import torch

import spanlm
from spanlm.cli.main import main
from spanlm.errors import InputError
from tests.goldens.small import command

transformers = pytest.importorskip("transformers", reason="needs the extra hf")
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers  # noqa: E402

from spanlm.interop import hf  # noqa: E402
from spanlm.interop.yardstick import Yardstick  # noqa: E402

END = "<|endoftext|>"
LINES = ["the cat sat on the mat .", "", "", "a zebra  sat naïvely", "dog"]


def bytes_tokenizer(split: str | None = None) -> Any:
    """Byte-level pairs, as GPT-2 has them, or of what a pattern splits off, as Llama 3 has them."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=split is None)
    if split is not None:
        whole = [pre_tokenizers.Split(Regex(split), "isolated"), made.pre_tokenizer]
        made.pre_tokenizer = pre_tokenizers.Sequence(whole)
    made.decoder, alphabet = decoders.ByteLevel(), pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=290, special_tokens=[END], initial_alphabet=alphabet, show_progress=False)
    made.train_from_iterator(["the cat sat on the mat .\na dog sat on a log.\n\n"] * 3, trainer)
    return transformers.PreTrainedTokenizerFast(tokenizer_object=made, bos_token=END, eos_token=END)


def letters_tokenizer(*without: str) -> Any:
    """Eight sub-words of which some begin with a space, one of them a space alone."""
    words = [word for word in (END, "a", "b", "Ġ", "Ġa", "Ġb", "Ċ", "ab") if word not in without]
    merges = [(pair[0], pair[1]) for pair in ("Ġa", "Ġb", "ab") if pair not in without]
    made = Tokenizer(models.BPE({word: id for id, word in enumerate(words)}, merges))
    made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=made, bos_token=END, eos_token=END)


def saved(folder: Path, tokenizer: Any, **options: Any) -> Path:
    """A GPT-2 of a few units that nobody trained, whose predictions are far from even."""
    torch.manual_seed(1)
    sizes = {"vocab_size": len(tokenizer), "n_positions": 64, "n_embd": 16, "n_layer": 2, "n_head": 2, **options}
    special = {"bos_token_id": 0, "eos_token_id": 0}
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, **special, initializer_range=0.4))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(tmp_path_factory.mktemp("gpt"), bytes_tokenizer())


@pytest.fixture(scope="module")
def letters(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(tmp_path_factory.mktemp("letters"), letters_tokenizer())


def following(folder: Path, text: str) -> Any:
    """What transformers says comes after `<bos> text`."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    ids = torch.tensor([[0, *tokenizer(text).input_ids]])
    with torch.no_grad():
        return model(ids).logits[0, -1].double().log_softmax(-1)


def nll(model: Any, ids: list[int], first: int = 1) -> float:
    """Nats of sub-words from the `first` on, by transformers."""
    with torch.no_grad():
        log_p = model.model(torch.tensor([ids[:-1]])).logits[0].double().log_softmax(-1)
    return -float(log_p.gather(-1, torch.tensor(ids[1:])[:, None])[first - 1 :].sum())


def test_a_words_end_is_counted_with_the_word(letters: Path) -> None:
    """Every sum is written out: p of the sub-words, and of all that can follow a word that has ended."""
    end, a, _, space, space_a, space_b, line_end, ab = range(8)
    rows = list(spanlm.load(f"hf:{letters}", "cpu").score("ab ba a", base=math.e, eos=True))
    assert [row.word for row in rows] == ["ab", "ba", "a", "<eos>"]
    edges = [end, space, space_a, space_b, line_end]

    def boundary(text: str) -> float:
        return float(following(letters, text)[edges].logsumexp(0))

    def log_p(text: str, *ids: int) -> float:
        return math.fsum(
            float(following(letters, text + part)[id]) for id, part in zip(ids, ("", " b", "")[: len(ids)], strict=True)
        )

    expected = [
        log_p("", ab) + boundary("ab"),
        log_p("ab", space_b, a) + boundary("ab ba") - boundary("ab"),
        log_p("ab ba", space_a) + boundary("ab ba a") - boundary("ab ba"),
        log_p("ab ba a", line_end) - boundary("ab ba a"),
    ]
    assert [-row.surprisal for row in rows] == pytest.approx(expected, abs=1e-5)
    first = following(letters, "ab")
    assert rows[1].entropy == pytest.approx(-float((first.exp() * first).sum()), abs=1e-5)
    assert rows[1].rank == 1 + int((first > first[space_b]).sum())
    plain = list(Yardstick(letters, "cpu", corrected=False).score("ab ba a", base=math.e, eos=True))
    assert -plain[1].surprisal == pytest.approx(log_p("ab", space_b, a), abs=1e-5)
    assert math.fsum(x.surprisal for x in plain) == pytest.approx(math.fsum(x.surprisal for x in rows), abs=1e-5)


def test_words_are_a_distribution(tmp_path: Path) -> None:
    """All words that can follow, those that are longer than four letters together, and what else can, sum to one."""
    folder = saved(tmp_path, letters_tokenizer("ab"))
    corrected, plain = (Yardstick(folder, "cpu", corrected=which) for which in (True, False))
    words = ["".join(letters) for size in (1, 2, 3, 4) for letters in itertools.product("ab", repeat=size)]
    p, q = (
        {word: math.exp(-list(model.score(f"a {word}", base=math.e))[1].surprisal) for word in words}
        for model in (corrected, plain)
    )
    after = following(folder, "a")
    end, space, line_end = after[[0, 3, 6]].exp().tolist()
    edge = float(after[[0, 3, 4, 5, 6]].exp().sum())
    unfinished = math.fsum(q[word] / edge - p[word] for word in words if len(word) == 4)
    assert math.fsum(p.values()) + unfinished + (end + space + line_end) / edge == pytest.approx(1.0, abs=1e-5)


def test_a_line_ends_by_eos_where_the_tokenizer_has_no_line_ends(tmp_path: Path) -> None:
    """As sentencepiece's tokenizers, which mark beginnings by ▁."""
    made = Tokenizer(models.BPE(unk_token="<unk>"))
    made.pre_tokenizer, made.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    trainer = trainers.BpeTrainer(vocab_size=60, special_tokens=[END, "<unk>"], show_progress=False)
    made.train_from_iterator(LINES, trainer)
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, bos_token=END, eos_token=END, unk_token="<unk>"
    )
    model = spanlm.load(f"hf:{saved(tmp_path, tokenizer)}", "cpu")
    rows = list(model.score("the cats sat", base=math.e, eos=True))
    assert [(row.word, row.oov) for row in rows] == [(word, False) for word in ("the", "cats", "sat", "<eos>")]
    (tmp_path / "text.txt").write_text("the cats sat\nthe ☃\n", encoding="utf-8")
    with pytest.raises(InputError, match="Leave spell_unknown out"):
        list(model.score(tmp_path / "text.txt", spell_unknown=True))
    with pytest.raises(InputError, match="does not know 1 words"):
        model.evaluate(tmp_path / "text.txt", spell_unknown=True)
    ids = [0, *tokenizer("the cats sat").input_ids, 0]
    assert math.fsum(row.surprisal for row in rows) == pytest.approx(nll(model, ids), abs=1e-4)


def test_a_line_end_that_the_tokenizer_joins_with_a_mark_stands_alone(tmp_path: Path) -> None:
    marks = r"[^\r\n\p{L}\p{N}]?\p{L}+| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    tokenizer = bytes_tokenizer(marks)
    text, line_end = "the cat sat.\n\nthe dog .", tokenizer.convert_tokens_to_ids("Ċ")
    assert ".ĊĊ" in tokenizer.tokenize(text + "\n")
    model = spanlm.load(f"hf:{saved(tmp_path, tokenizer)}", "cpu")
    rows = list(model.score(text, state="carry", base=math.e, eos=True))
    assert [row.word for row in rows] == ["the", "cat", "sat.", "<eos>", "<eos>", "the", "dog", ".", "<eos>"]
    ids = [0]
    for line in text.split("\n"):
        ids += [*tokenizer(line).input_ids, line_end]
    assert math.fsum(row.surprisal for row in rows) == pytest.approx(nll(model, ids), abs=1e-4)


def test_a_folder_of_half_precision_is_read_as_its_weights_in_float32(folder: Path, tmp_path: Path) -> None:
    """transformers alone would compute in bfloat16 what is called fp32."""
    half, same = tmp_path / "half", tmp_path / "same"
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).bfloat16()
    for place in (half, same):
        model.save_pretrained(place)
        bytes_tokenizer().save_pretrained(place)
        model = model.float()
    first, second = (
        [row.surprisal for row in spanlm.load(f"hf:{place}", "cpu").score(LINES)] for place in (half, same)
    )
    assert first == second


def test_evaluate_sums_what_score_gives(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("\n".join(LINES) + "\n")
    model = spanlm.load(f"hf:{folder}", "cpu")
    for state in ("carry", "line"):
        found = model.evaluate(str(tmp_path / "text.txt"), state=state)
        rows = list(model.score(LINES, state=state, base=math.e, eos=True))
        assert (found.tokens, found.unk_tokens, found.oov_tokens) == (len(rows), 0, 0)
        assert found.nll == pytest.approx(math.fsum(row.surprisal for row in rows), abs=1e-3)
        words = [row for row in rows if row.word != "<eos>"]
        assert found.shares["words"].count == found.shares["without_eos"].count == len(words) == 12
        assert found.shares["without_eos"].nll == pytest.approx(math.fsum(row.surprisal for row in words), abs=1e-3)
        letters = sum(len(word) + 1 for line in LINES for word in line.split()) + LINES.count("")
        assert found.shares["characters"].count == letters
    told = json.loads(command("evaluate", f"hf:{folder}", "--corpus", tmp_path / "text.txt", "--json"))
    assert told["perplexity"] == pytest.approx(model.evaluate(str(tmp_path / "text.txt")).perplexity)


def test_a_long_text_is_read_in_windows_that_overlap(folder: Path) -> None:
    """Each sub-word is predicted once, from the half of a window before it or more."""
    model = Yardstick(folder, "cpu")
    line = " ".join(["the cat sat on a mat ."] * 30)
    ids = [0, *model.tokenizer(line + "\n").input_ids]
    assert len(ids) > 3 * model.window
    expected, start = 0.0, 1
    while start < len(ids):
        begin = max(0, start - model.window // 2)
        stop = min(len(ids), begin + model.window + 1)
        expected, start = expected + nll(model, ids[begin:stop], start - begin), stop
    for state in ("line", "carry"):
        rows = model.score(line, state=state, base=math.e, eos=True)
        assert math.fsum(row.surprisal for row in rows) == pytest.approx(expected, abs=1e-3)


def test_a_context_is_carried_and_begins_anew_where_it_should(folder: Path) -> None:
    model = Yardstick(folder, "cpu")
    together = list(model.score(LINES, eos=True))
    alone = [row for line in LINES for row in model.score(line, eos=True)]
    assert [row.surprisal for row in together] == pytest.approx([row.surprisal for row in alone], abs=1e-4)
    assert [(row.word, row.rank) for row in together] == [(row.word, row.rank) for row in alone]
    carried = [row.surprisal for row in model.score(LINES, state="carry")]
    assert carried[:7] == pytest.approx([row.surprisal for row in model.score(LINES[0])], abs=1e-4)
    assert carried[7] != pytest.approx(next(iter(model.score(LINES[3]))).surprisal, abs=1e-3)
    apart = [row.surprisal for row in model.score(LINES, state="document")]
    second = [row.surprisal for row in model.score(LINES[3:], state="carry")]
    assert apart == pytest.approx([*carried[:7], *second], abs=1e-4)


def test_an_exported_run_says_what_the_run_says(run: spanlm.TrainedModel, tmp_path: Path) -> None:
    hf.export(run, tmp_path / "out")
    there = spanlm.load(f"hf:{tmp_path / 'out'}", "cpu")
    text = ["the cat sat on the mat .", "zebra said N", ""]
    (tmp_path / "text.txt").write_text("\n".join(text) + "\n")
    for state in ("line", "carry"):
        rows = [list(model.score(text, state=state, eos=True)) for model in (run, there)]
        for one, other in zip(*rows, strict=True):
            assert (one.surprisal, one.entropy) == pytest.approx((other.surprisal, other.entropy), abs=1e-5)
            assert astuple(one)[:3] == astuple(other)[:3] and (one.rank, one.oov) == (other.rank, other.oov)
        own, other = (model.evaluate(str(tmp_path / "text.txt"), state=state) for model in (run, there))
        assert (own.tokens, own.unk_tokens) == (other.tokens, other.unk_tokens)
        assert (own.nll, own.perplexity_without_unk) == pytest.approx(
            (other.nll, other.perplexity_without_unk), abs=1e-4
        )
    for model in (run, there):
        with pytest.raises(InputError, match="items='the cat': is one string; give a list of them"):
            list(model.score_items("the cat"))
        with pytest.raises(InputError, match="texts='the cat': is one string"):
            model.score_texts("the cat")
    items = [next(iter(model.score_items(text[1:]))) for model in (run, there)]
    assert [each.word for each in items[0]] == [each.word for each in items[1]]
    reductions = [[each.entropy_reduction for each in item] for item in items]
    assert reductions[0] == pytest.approx(reductions[1], abs=1e-5)
    assert run.compare("the cat", "cat the").good == pytest.approx(there.compare("the cat", "cat the").good, abs=1e-5)


def test_an_exported_run_that_never_opened_a_line_is_refused(unopened_run: Path, tmp_path: Path) -> None:
    hf.export(spanlm.load(unopened_run), tmp_path / "out")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    assert tokenizer.tokenize("the cat", add_special_tokens=True) == ["the", "cat"], "nor does its tokenizer"
    with pytest.raises(InputError, match=r"never predicted the first word of a line .* Name the run"):
        spanlm.load(f"hf:{tmp_path / 'out'}", "cpu")


def test_a_folder_called_as_a_corpus_is_read_as_any_other(run: spanlm.TrainedModel, tmp_path: Path) -> None:
    hf.export(run, tmp_path / "demo")
    with contextlib.chdir(tmp_path):
        rows = spanlm.load("hf:demo", "cpu").score("The Name is bound.")
    assert [row.word for row in rows] == ["The", "Name", "is", "bound."]


def test_both_stand_in_one_table(run: spanlm.TrainedModel, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "items.csv").write_text("item,sentence\n1,the cat sat .\n2,a dog\n")
    out = tmp_path / "out.csv"
    command("score", run.folder, f"hf:{folder}", tmp_path / "items.csv", "--text", "sentence", "--out", out)
    rows = [line.split(",") for line in out.read_text().splitlines()]
    assert [row[rows[0].index("word")] for row in rows[1:]] == ["the", "cat", "sat", "."] * 2 + ["a", "dog"] * 2
    tokens = {row[rows[0].index("word")]: row[rows[0].index("tokens")] for row in rows[1:] if row[1] != "run"}
    assert tokens["cat"] == "Ġcat"
    assert json.loads((tmp_path / "out.csv.meta.json").read_text())["runs"]


def test_pairs_and_lists_are_scored(folder: Path, tmp_path: Path) -> None:
    pairs = tmp_path / "pairs.jsonl"
    pairs.write_text('{"sentence_good": "the cat sat .", "sentence_bad": "cat the sat ."}\n')
    command("pairs", f"hf:{folder}", pairs, "--out", tmp_path / "answers.jsonl")
    answer = json.loads((tmp_path / "answers.jsonl").read_text())
    model = spanlm.load(f"hf:{folder}", "cpu")
    rows = list(model.score("the cat sat .", base=math.e, eos=True))
    assert answer["good"] == pytest.approx(-math.fsum(row.surprisal for row in rows), abs=1e-5)
    (tmp_path / "lists").write_text(
        "u1 ||| the cat sat . ||| lm= -1 ||| -1.0\nu1 ||| cat the sat . ||| lm= -2 ||| -1.5\n"
    )
    told = json.loads(
        command("rescore", f"hf:{folder}", "--nbest", tmp_path / "lists", "--weights", f"{folder.name}=1", "--json")
    )
    assert told["hypotheses"] == 2


def test_marks_of_toolkits_are_left_out(folder: Path, tmp_path: Path) -> None:
    model, line = spanlm.load(f"hf:{folder}", "cpu"), "the cat sat ."
    paths = [tmp_path / name for name in ("plain.txt", "marked.txt")]
    for path, text in zip(paths, (line, f"<s> {line} </s>"), strict=True):
        path.write_text(f"{text}\n" * 3)
    plain, marked = (model.evaluate(path) for path in paths)
    assert (marked.tokens, marked.nll) == (plain.tokens, pytest.approx(plain.nll))
    scores, _ = model.score_texts([line, f"<s> {line} </s>", f"{line} <eos>"])
    assert [score.log_prob for score in scores] == pytest.approx([scores[0].log_prob] * 3)
    assert [len(score.words) for score in scores] == [4, 6, 5]


REFUSED = [
    (("generate",), "generate"),
    (("evaluate", "--dynamic"), "--dynamic"),
    (("evaluate", "--cache", "10"), "--cache"),
    (("evaluate", "--vocab-pad", "100"), "--vocab-pad"),
    (("evaluate", "--attention", "none"), "--attention"),
    (("evaluate", "--state", "document"), "--state=document"),
    (("attend", "--text", "the"), "attend"),
]


@pytest.mark.parametrize(("arguments", "named"), REFUSED)
def test_what_it_cannot_do_is_refused_in_one_line(
    folder: Path, tmp_path: Path, arguments: tuple[str, ...], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "text.txt").write_text("the cat\n")
    corpus = ["--corpus", str(tmp_path / "text.txt")] * (arguments[0] == "evaluate")
    assert main([arguments[0], f"hf:{folder}", *arguments[1:], *corpus]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert named in line


def test_it_is_compared_but_not_with_a_cache(
    folder: Path, tiny_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "text.txt").write_text("the cat\n" * 40)
    command = ["compare", str(tiny_run), f"hf:{folder}", "--words", "common", "--corpus", str(tmp_path / "text.txt")]
    assert main(command) == 0
    assert main([*command, "--cache", "9", "--tune-cache"]) == 2
    assert f"--cache: hf:{folder} predicts sub-words" in capsys.readouterr().err
    capsys.readouterr()
    written = [*command[:3], "--spell-unknown", *command[5:], "--json"]
    assert main(written) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["compared"], found["unit"]) == (120, "written word")
    alone = spanlm.load(f"hf:{folder}", "cpu").evaluate(tmp_path / "text.txt")
    assert found["comparisons"][0]["bits"] == pytest.approx(alone.bits_per_token, rel=1e-5)
    assert main(["compare", f"hf:{folder}", str(tiny_run), *command[3:]]) == 2
    assert "Name it last" in capsys.readouterr().err
    assert main(["compare", f"hf:{folder}", f"hf:{folder}", *command[3:]]) == 2
    assert main(["evaluate", f"hf:{folder}", "--format", "kenlm", *command[5:]]) == 2
    assert "whose words have no ids" in capsys.readouterr().err


def test_a_text_with_a_law_is_measured_without_it(folder: Path) -> None:
    source = "synthetic:recall,tokens=100,pairs=1,queries=1"
    found = json.loads(command("evaluate", f"hf:{folder}", "--corpus", source, "--json"))
    assert found["tokens"] > 0 and "excess" not in found
    with pytest.raises(InputError, match="excess"):
        spanlm.load(f"hf:{folder}", "cpu").excess(source)


def test_folders_that_cannot_be_a_yardstick_say_what_to_do(folder: Path, tmp_path: Path) -> None:
    def broken(name: str, *without: str, **config: Any) -> str:
        path = shutil.copytree(folder, tmp_path / name)
        for each in without:
            (path / each).unlink()
        changed = json.loads((path / "config.json").read_text()) | config
        (path / "config.json").write_text(json.dumps(changed))
        return f"hf:{path}"

    own = {"AutoConfig": "own.Config", "AutoModelForCausalLM": "own.Model"}
    sizes = {"vocab_size": 290, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    transformers.BertLMHeadModel(transformers.BertConfig(**sizes, intermediate_size=16)).save_pretrained(
        tmp_path / "bert"
    )
    bytes_tokenizer().save_pretrained(tmp_path / "bert")
    for name, message in (
        ("hf:gpt2", "nothing is fetched"),
        (broken("words", "tokenizer.json", "tokenizer_config.json"), "tokenizer"),
        (broken("weights", "model.safetensors"), r"model\.safetensors"),
        (broken("code", model_type="own", auto_map=own), "trust_remote_code"),
        (f"hf:{saved(tmp_path / 'small', bytes_tokenizer(), vocab_size=20)}", "own tokenizer"),
        (f"hf:{tmp_path / 'bert'}", "only causal"),
    ):
        with pytest.raises(InputError, match=message):
            spanlm.load(name)
    with pytest.raises(InputError, match="sub-words"):
        spanlm.load_ensemble([f"hf:{folder}", "other"])


def test_predictors_stand_beside_its_surprisal(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table, counts = tmp_path / "t.csv", tmp_path / "f.csv"
    table.write_text("line,word\n1,the\n1,cat.\n2,dog\n")
    counts.write_text("word,count\nthe,3\ncat,1\n")
    how = ["score", f"hf:{folder}", str(table), "--text", "word", "--line", "line", "--predictors", "length,frequency"]
    assert main(how) == 2 and "has no text of its own. Name a file by --frequencies" in capsys.readouterr().err
    assert main([*how, "--frequencies", str(counts), "--spillover", "1", "--format", "jsonl"]) == 0
    rows = [json.loads(row) for row in capsys.readouterr().out.splitlines()]
    assert [row["length"] for row in rows] == [3, 3, 3]
    assert [row["frequency"] for row in rows] == pytest.approx([math.log10(1e6 * x) for x in (0.75, 0.25, 0.25)])
    assert [row["surprisal_prev1"] for row in rows] == [None, rows[0]["surprisal"], None]
    assert main([*how[:-2], "--separator", ""]) == 2 and "white space between" in capsys.readouterr().err
