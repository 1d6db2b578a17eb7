"""The corpus as a whole, against what the articles were made of."""

import bz2
import gzip
import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spanlm.data.config import DataConfig
from spanlm.data.corpora import load_corpus
from spanlm.data.wikipedia import CATEGORIES, WikipediaConfig, split_articles
from spanlm.errors import InputError
from tests.data.wikipedia import small
from tests.data.wikipedia.small import (
    FOOTER,
    HEADER,
    build,
    contents,
    dump,
    json_line,
    json_lines,
    listed,
    made_articles,
    page,
    reused,
    texts,
    wikitext,
)

ARTICLES = made_articles(60)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "wiki.jsonl"
    path.write_bytes(json_lines(ARTICLES))
    return path


def test_every_article_is_in_one_split_and_the_most_frequent_words_of_the_training_part_stay(
    source: Path, tmp_path: Path
) -> None:
    told = build(source, tmp_path / "out", vocabulary=40)["vocabulary"]
    rows = listed(tmp_path / "out")
    assert [(row["id"], row["title"]) for row in rows] == [(made.id, made.title) for made in ARTICLES]
    assert [int(row["words"]) for row in rows] == [made.words for made in ARTICLES]
    assert [int(row["sentences"]) for row in rows] == [len(made.sentences) for made in ARTICLES]
    every = {
        split: "".join(made.lines for made, row in zip(ARTICLES, rows, strict=True) if row["split"] == split)
        for split in ("train", "valid", "test")
    }
    counts = Counter(every["train"].split())
    kept = sorted(counts, key=lambda word: -counts[word])[:38]  # a Counter has its words in the order of the text
    for split, text in texts(tmp_path / "out").items():
        assert text == re.sub(r"\S+", lambda word: word[0] if word[0] in kept else "<unk>", every[split])
    covered = sum(counts[word] for word in kept) / counts.total()
    assert told == {"size": 40, "types": len(counts), "coverage": covered}


@pytest.mark.parametrize("pack", [bytes, gzip.compress, small.several_bzip2_streams])
def test_a_dump_says_the_same_as_json_lines(source: Path, tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    (tmp_path / "dump").write_bytes(pack(dump(ARTICLES)))
    build(source, tmp_path / "json")
    build(tmp_path / "dump", tmp_path / "xml")
    first, second = contents(tmp_path / "json"), contents(tmp_path / "xml")
    assert all(first[name] == second[name] for name in first if name != "corpus.json")


def test_the_counts_are_those_that_training_finds(source: Path, tmp_path: Path) -> None:
    told = build(source, tmp_path / "out", vocabulary=50, lowercase=True)
    assert told == json.loads((tmp_path / "out" / "corpus.json").read_text("utf-8"))
    corpus = load_corpus(DataConfig(corpus=str(tmp_path / "out"), documents="blank-line", min_count=1))
    assert len(corpus.vocabulary) == told["vocabulary"]["size"] == 50
    assert corpus.oov == {"train": 0, "valid": 0, "test": 0}
    for split, counts in told["splits"].items():
        tokens, text = corpus.splits[split], texts(tmp_path / "out")[split]
        assert len(tokens) == counts["tokens"] == len(text.split()) + text.count("\n")
        articles = [len(article.split()) + article.count("\n") + 2 for article in text.split("\n\n")[:-1]]
        assert tokens.documents.tolist() == [sum(articles[:number]) for number in range(counts["articles"])]
        assert counts["words"] == len(text.split()) and counts["unknown"] == text.split().count("<unk>")
        assert counts["sentences"] == text.count("\n") - text.count("\n\n")
        assert counts["sha256"] == hashlib.sha256(text.encode()).hexdigest()
    words, sentences = (sum(counts[name] for counts in told["splits"].values()) for name in ("words", "sentences"))
    assert told["words_per_sentence"] == words / sentences


def test_a_link_to_an_empty_folder_gets_the_corpus_in_that_folder(source: Path, tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "disk")
    build(source, tmp_path / "link")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "disk" / "corpus.json").is_file()


def test_a_vocabulary_of_more_words_than_there_are(source: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"vocabulary=77000: .* Give vocabulary=(\d+) for all") as refused:
        build(source, tmp_path / "out", vocabulary=77_000)
    every = int(str(refused.value).partition("Give vocabulary=")[2].split()[0])
    assert not (tmp_path / "out").exists()
    assert reused(source, tmp_path / "out", vocabulary=every) == 1
    assert "<unk>" not in texts(tmp_path / "out")["train"]
    assert len(load_corpus(DataConfig(corpus=str(tmp_path / "out"), min_count=1)).vocabulary) == every


def test_the_seed_decides_who_is_held_out_and_nothing_else_does(source: Path, tmp_path: Path) -> None:
    def held_out(name: str, *paths: Path, **options: object) -> dict[str, str]:
        build(paths, tmp_path / name, **options)
        return {row["id"]: row["split"] for row in listed(tmp_path / name)}

    halves = [tmp_path / "b.jsonl", tmp_path / "a.jsonl"]
    for half, path in zip((ARTICLES[30:], ARTICLES[:30]), halves, strict=True):
        path.write_bytes(json_lines(half))
    first = held_out("first", source)
    assert held_out("again", source) == first
    assert contents(tmp_path / "again") == contents(tmp_path / "first")
    assert held_out("other order", *halves, lowercase=True) == first
    assert held_out("other seed", source, seed=2) != first


def test_a_folder_is_all_its_files_and_the_first_of_two_articles_stays(tmp_path: Path) -> None:
    folder = tmp_path / "wiki"
    (folder / "AA").mkdir(parents=True)
    (folder / "AA" / "wiki_00").write_bytes(json_lines(ARTICLES[:20]))
    (folder / "AA" / "wiki_01.bz2").write_bytes(bz2.compress(json_lines(ARTICLES[15:40])))
    (folder / "b.jsonl.gz").write_bytes(gzip.compress(json_lines(ARTICLES[40:])))
    (folder / "README.md").write_text("not an article")
    summary = build(folder, tmp_path / "out")
    assert [row["id"] for row in listed(tmp_path / "out")] == [made.id for made in ARTICLES]
    assert summary["skipped"] == {"repeated": 5}
    files = [(folder / name).read_bytes() for name in ("AA/wiki_00", "AA/wiki_01.bz2", "b.jsonl.gz")]
    assert [source["sha256"] for source in summary["sources"]] == [hashlib.sha256(data).hexdigest() for data in files]


@pytest.mark.parametrize("kind", ["jsonl", "xml"])
def test_categories_choose(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"x.{kind}"
    path.write_bytes(json_lines(ARTICLES) if kind == "jsonl" else dump(ARTICLES))
    summary = build(path, tmp_path / "out", category="^(Cit|Nov)")
    chosen = [made.id for made in ARTICLES if made.category in ("Cities", "Novels")]
    assert [row["id"] for row in listed(tmp_path / "out")] == chosen
    assert summary["skipped"] == {"category": len(ARTICLES) - len(chosen)}


PLACED = {
    "People": ("1950 births", "Living people", "340s BC deaths", "People"),
    "Cities": ("Cities in Utopia", "Port cities and towns in Utopia", "Cities"),
    "Countries": ("Countries in Europe", "Member states of the United Nations", "Countries"),
    "Universities": ("Universities and colleges in Utopia", "Public universities in Utopia", "Universities"),
    "Novels": ("1984 British novels", "Novels by Nobody", "Debut novels", "Novels"),
    "": ("Films based on British novels", "Sister cities", "Alumni by university", "Foreign relations by country"),
}
"""Names of categories as Wikipedia has them, by what Daniluk et al. chose."""


@pytest.mark.parametrize("kind", ["jsonl", "xml"])
def test_a_paper_chooses_the_first_articles_of_each_of_its_categories(tmp_path: Path, kind: str) -> None:
    names = [name for number in range(3) for placed in PLACED.values() for name in placed[number : number + 1]]
    names += ["1950 births", "Living people", "Cities in Utopia", "Sister cities"]
    articles = [replace(made, category=name) for made, name in zip(ARTICLES, names, strict=False)]
    path = tmp_path / f"x.{kind}"
    path.write_bytes(json_lines(articles) if kind == "jsonl" else dump(articles))
    summary = build(path, tmp_path / "out", like="daniluk2017", articles=16)
    wanted = {"People": 3, "Cities": 3, "Countries": 3, "Universities": 3, "Novels": 4}  # 16 in five shares
    counts = {name: count["articles"] for name, count in summary["selection"]["categories"].items()}
    assert counts == {**wanted, "Novels": 3}, "the source has three novels"
    assert {name: count["wanted"] for name, count in summary["selection"]["categories"].items()} == wanted
    first = [made.id for made in articles[:18] if made.category not in PLACED[""]]
    assert [row["id"] for row in listed(tmp_path / "out")] == first
    assert summary["skipped"] == {"category": 4, "surplus": 3}


def test_each_category_of_a_paper_has_its_names() -> None:
    for chosen, names in PLACED.items():
        for name in names:
            assert [x for x, pattern in CATEGORIES.items() if re.search(pattern, name)] == [chosen] * bool(chosen), name
    config = WikipediaConfig(sources=(Path("x"),), out=Path("y"), like="daniluk2017")
    assert sum(config.shares.values()) == 7_500


def test_articles_without_categories(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(b"".join(json_line(made, category=None) for made in ARTICLES))
    with pytest.raises(InputError, match=r"no category 60.* a dump, or JSON lines with the field category"):
        build(path, tmp_path / "out", like="daniluk2017")


def test_the_first_articles_only(tmp_path: Path) -> None:
    paths = [tmp_path / f"{number}.jsonl" for number in range(20)]
    for number, path in enumerate(paths):
        path.write_bytes(json_lines(ARTICLES[3 * number : 3 * number + 4]))  # the last one comes again in the next
    summary = build(paths, tmp_path / "few", articles=7)
    assert [row["id"] for row in listed(tmp_path / "few")] == [made.id for made in ARTICLES[:7]]
    assert len(summary["sources"]) == 20
    assert summary["left_out_words"] == {"title": 14} and summary["skipped"] == {"repeated": 1}


def test_what_is_no_article_is_skipped_and_counted(tmp_path: Path) -> None:
    others = (
        page("1", "Talk:A", "Long talk.", namespace=1)
        + page("2", "B", "#REDIRECT [[A]]", redirect=True)
        + page("3", "C", "#redirect [[A]]")
        + page("4", "D (disambiguation)", "Prose that is none.")
        + page("5", "E", "It may be:\n* x\n{{disambig}}")
        + page("6", "F", "{{Infobox}}")
    )
    body = others + "".join(page(made.id, made.title, wikitext(made)) for made in ARTICLES[:4])
    (tmp_path / "x.xml").write_text(HEADER + body + FOOTER, encoding="utf-8")
    summary = build(tmp_path / "x.xml", tmp_path / "out")
    assert summary["skipped"] == {"disambiguation": 2, "empty": 2, "namespace": 1, "redirect": 1}
    assert summary["dropped_templates"] == {"infobox person": 4}  # of articles that stay, and outside of notes
    assert [row["id"] for row in listed(tmp_path / "out")] == [made.id for made in ARTICLES[:4]]


@settings(max_examples=50)
@given(st.dictionaries(st.integers(0, 2**64 - 1), st.integers(1, 5000), min_size=3, max_size=80))
def test_held_out_splits_have_their_share_and_part_of_an_article_more(articles: dict[int, int]) -> None:
    splits, lots, sizes = split_articles(articles), list(articles), list(articles.values())
    order = sorted(range(len(sizes)), key=lots.__getitem__)
    # a plain loop: in the order of the lots, one after the other until the share is reached
    expected, queue = {}, list(order)
    for split, left in ((1, 2), (2, 1)):
        share = (1.2 / 24.9) * sum(sizes)
        taken = 0
        while len(queue) > left and taken < share:
            expected[queue[0]] = split
            taken += sizes[queue.pop(0)]
    assert [expected.get(number, 0) for number in range(len(sizes))] == splits.tolist()
    assert {0, 1, 2} == set(splits.tolist())


@pytest.mark.parametrize("count", [1, 2])
def test_too_few_to_split(source: Path, tmp_path: Path, count: int) -> None:
    source.write_bytes(json_lines(ARTICLES[:count]))
    with pytest.raises(InputError, match=rf"{count} article\(s\) in it .* need three"):
        build(source, tmp_path / "out")
    assert [*tmp_path.iterdir()] == [source]
