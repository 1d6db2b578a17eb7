"""References: each format of them, ids that are not the lists', and alternatives as the fewest errors of all texts."""

import itertools
import json
from pathlib import Path

import jiwer
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanlm.errors import InputError
from spanlm.rescoring.formats import Hypothesis, NBestList
from spanlm.rescoring.references import Reference, aligned, read_references

LISTS = [NBestList("u1", (Hypothesis("a"),)), NBestList("u2", (Hypothesis("b"),))]


@pytest.mark.parametrize("text", ["u2 c d\nu1 a b\n", "c d (u2)\na b (u1)\n", "a b\nc d\n"])
def test_references(text: str, tmp_path: Path) -> None:
    (tmp_path / "r").write_text(text)
    assert read_references(tmp_path / "r", LISTS) == [["a", "b"], ["c", "d"]]


@pytest.mark.parametrize("text", ["U1 a b\nU2 c d\n", "a b (spk-u1)\nc d (spk-u2)\n", "u1.wav a b\nu2.wav c d\n"])
def test_ids_that_are_nearly_those_of_the_lists_are_no_words(text: str, tmp_path: Path) -> None:
    (tmp_path / "r").write_text(text)
    with pytest.raises(InputError, match=r"its lines have ids, such as .*, and these are not the lists', such as u1"):
        read_references(tmp_path / "r", LISTS)


def test_words_that_begin_with_a_number_are_words_of_lists_that_are_numbered(tmp_path: Path) -> None:
    (tmp_path / "r").write_text("10 men came\n")
    assert read_references(tmp_path / "r", [NBestList("0", (Hypothesis("a"),))]) == [["10", "men", "came"]]
    texts = ["so it goes"] * 4 + ["5 people came"] + ["so it went"] * 3 + ["5 years later"] + ["so it was"] * 3
    (tmp_path / "r").write_text("\n".join(texts) + "\n")
    numbered = [NBestList(str(n), (Hypothesis("a"),)) for n in range(len(texts))]
    assert read_references(tmp_path / "r", numbered) == [text.split() for text in texts]


@pytest.mark.parametrize(
    ("text", "message"),
    [("u1 a\nu3 b\n", "no reference of u2"), ("a\n", "1 lines for 2 lists"), ("u1 a\nu1 b\nu2 c\n", "line 2: u1")],
)
def test_references_that_do_not_fit(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "r").write_text(text)
    with pytest.raises(InputError, match=message):
        read_references(tmp_path / "r", LISTS)


MANIFEST = [{"audio_filepath": "a/u2.wav", "text": "c d", "duration": 1}, {"audio_filepath": "/u1.flac", "text": "a b"}]


def lines(records: list[dict[str, object]]) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("r", lines(MANIFEST)),
        ("r.json", json.dumps(MANIFEST, indent=1)),
        ("r", lines([{"id": "u1", "text": "a b"}, {"utt": "u2", "text": "c d"}])),
        ("r", lines([{"utt_id": "u1", "text": "a b"}, {"key": "u2", "text": "c d"}])),
        ("r", "u2 A s 0.0 1.0 c d\nu1 A s 0.0 1.0 a b\n"),
        ("r.stm", ";; LABEL\nu1 1 s 0 10 <o,f0,male> a b\nu2 1 s 0 10 <o,f0,male> c d\n"),
        ("r", "u1 A s 1.0 2.0 b\nu2 A s 0.0 1.0 c d\nu1 A s 0.0 1.0 a\n"),
        ("r", "u1 A s 0.0 1.0 a b\nu1 A s 2.0 3.0 IGNORE_TIME_SEGMENT_IN_SCORING\nu2 A s 0.0 1.0 c d\n"),
        ("r", "u1 A s 0.00 1.00 <o> a b\nu2 A s 0.00 1.00 c d"),
        ("r.trn", ";; of today\na b (u1)\nc d(u2)\n"),
        ("r", "u1\ta b\nu2\tc d\n"),
        ("r", "a b\nc d\n\n \n"),
    ],
)
def test_formats_of_references(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    assert read_references(tmp_path / name, LISTS) == [["a", "b"], ["c", "d"]]


NUMBERED = [NBestList("1", (Hypothesis("a"),)), NBestList("2", (Hypothesis("b"),))]


@pytest.mark.parametrize(
    "text",
    [lines([{"audio_filepath": "2.wav", "text": "a"}, {"audio_filepath": "1.wav", "text": "b"}]), "a (x)\nb (y)\n"],
)
def test_ids_of_lists_that_are_but_numbered_are_not_needed(text: str, tmp_path: Path) -> None:
    (tmp_path / "r").write_text(text)
    assert read_references(tmp_path / "r", NUMBERED) == [["a"], ["b"]]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("r.csv", "id,text\nu1,a\nu2,b\n", "CSV"),
        ("r.ctm", "u1 A 0.0 0.5 a\n", "transcript with times"),
        ("r", "1\n00:00:00,000 --> 00:00:01,000\na\n", "transcript with times"),
        ("r.json", '{"u1": {"text": "a"},\n "u2": {"text": "b"}}', "line 1: is not"),
        ("r", lines([{"id": "u1", "txt": "a"}]), "line 1: is not .*text"),
        ("r", lines([{"text": "a"}, {"text": "b"}]), "line 1: .* no id"),
        ("r", lines([{"id": "x1", "text": "a"}, {"id": "x2", "text": "b"}]), "such as x1, and these are not .* as u1"),
        ("r", lines(MANIFEST[:1]), "no reference of u1"),
        ("r", lines([*MANIFEST, *MANIFEST]), "line 3: u2 has a reference already"),
        ("r.stm", "u1 A s 0.0 x a\n", "line 1: .* is not `ID channel"),
        ("r.trn", "a (u1)\nb\n", "line 2: 'b' is not"),
        ("r.trn", "a { b / c (u1)\nb (u2)\n", "line 1: a { is not closed"),
        ("r", "".join(f"spk1-{n:03} a\n" for n in range(5)), "such as spk1-000"),
    ],
)
def test_what_is_no_reference_is_refused_by_name(name: str, text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=message):
        read_references(tmp_path / name, LISTS)


def test_words_are_left_out_and_segments_not_scored(tmp_path: Path) -> None:
    (tmp_path / "r.stm").write_text("u1 A s 0 1 a { [laugh] / b }\nu2 A s 0 1 ignore_time_segment_in_scoring\n")
    assert read_references(tmp_path / "r.stm", LISTS, {"[laugh]"}) == [["a", [[], ["b"]]], None]
    assert aligned(["a", "b"], None) == ([], [])


WORD = st.sampled_from("ab")
TEXT = st.lists(WORD, max_size=3)
REFERENCE = st.recursive(
    st.lists(WORD, max_size=3),
    lambda inner: st.lists(st.one_of(WORD, st.lists(inner, min_size=1, max_size=3)), max_size=3),
    max_leaves=5,
)


def expansions(reference: Reference) -> list[list[str]]:
    parts = [[[x]] if isinstance(x, str) else [text for inner in x for text in expansions(inner)] for x in reference]
    return [list(itertools.chain(*choice)) for choice in itertools.product(*parts)]


@given(TEXT, REFERENCE)
def test_alternatives_count_as_the_best_of_all_texts(hypothesis: list[str], reference: Reference) -> None:
    def errors(text: list[str]) -> int:
        if not text:
            return len(hypothesis)
        found = jiwer.process_words(" ".join(text), " ".join(hypothesis))
        return found.substitutions + found.deletions + found.insertions

    words, best = aligned(hypothesis, reference)
    texts = expansions(reference)
    assert words == hypothesis and best in texts
    assert errors(best) == min(map(errors, texts))
