import itertools
import platform
import re

from spanlm.data.config import SPLITS, DataConfig
from spanlm.data.corpora import load_corpus
from spanlm.data.demo import Topic, demo_topics, extract_topics
from spanlm.data.tokenizer import tokenize

MARKED_UP = """The "while" statement
*********************

The "while" statement is used for *repeated* execution as long as an
expression is true:

   while_stmt ::= "while" assignment_expression ":" suite
                  ["else" ":" suite]

This repeatedly tests the expression and, if it is **true**, executes the
first suite; see "object.__bool__()". [1] A "break" statement, e.g. in the
first suite, ends the post-
mortem loop.

   >>> while True:
   ...     pass
   This line belongs to the code above.

+---------+-----------+
| This is | a table.  |
+---------+-----------+

* Every item of a list is a sentence of its own.

* fragments of lists are dropped.

Changed in version 3.8: This note about a version is dropped.

object.__bool__(self)

   Called to implement truth value testing. The result of "x < y" is code.

Integers ("int")
   These represent numbers in an unlimited range.

Note:

  Notes are kept as well as all other sentences.

-[ Footnotes ]-

[1] This limitation occurs in very old versions.
"""


def text_of(topic: Topic) -> list[str]:
    return [" ".join(sentence) for sentence in topic.sentences]


def test_sentences_are_kept_and_all_else_is_dropped() -> None:
    (topic,) = extract_topics({"while": MARKED_UP})
    assert text_of(topic) == [
        "the while statement is used for repeated execution as long as an expression is true :",
        "this repeatedly tests the expression and , if it is true , executes the first suite ; see object.__bool__ .",
        "a break statement , e.g. in the first suite , ends the post-mortem loop .",
        "every item of a list is a sentence of its own .",
        "called to implement truth value testing .",
        "these represent numbers in an unlimited range .",
        "notes are kept as well as all other sentences .",
        "this limitation occurs in very old versions .",
    ]


def test_the_real_text_reads_as_sentences() -> None:
    sentences = [sentence for topics in demo_topics().values() for t in topics for sentence in text_of(t)]
    assert len(sentences) > 1000
    for sentence in sentences:
        assert sentence[-1] in ".?!:)", sentence
        assert not re.search(r"::|>>>|[*`|<>=\[\]{}\"\\]|\.\.\. ", sentence), sentence
        assert sentence == " ".join(tokenize(sentence, "words")), sentence
    words = [word for sentence in sentences for word in sentence.split()]
    assert sum(word.isalpha() for word in words) > 0.8 * len(words)
    assert words.count("the") > 0.03 * len(words)


def test_splits_are_disjoint_and_about_80_10_10() -> None:
    topics = demo_topics()
    sentences = {split: {sentence for t in topics[split] for sentence in t.sentences} for split in SPLITS}
    for one, other in itertools.combinations(SPLITS, 2):
        assert not sentences[one] & sentences[other]
        assert not {t.name for t in topics[one]} & {t.name for t in topics[other]}
    sizes = {split: sum(map(len, topics[split])) for split in SPLITS}
    total = sum(sizes.values())
    assert total > 20_000 and 0.76 < sizes["train"] / total < 0.84
    assert all(0.07 < sizes[split] / total <= 0.1 and len(topics[split]) >= 2 for split in SPLITS[1:])


def test_the_corpus_has_its_topics_as_documents_and_learns_unk() -> None:
    corpus = load_corpus(DataConfig())
    assert corpus.name == "demo"
    assert corpus.tokenizer == DataConfig().effective_tokenizer == "words"
    for split, tokens in corpus.splits.items():
        edges = [*tokens.documents.tolist(), len(tokens)]
        assert [end - begin for begin, end in itertools.pairwise(edges)] == [*map(len, demo_topics()[split])]
        unknown = int((tokens.ids == corpus.vocabulary.unk_id).sum())
        assert unknown == corpus.oov[split] > 0
        assert tokens.ids[-1] == corpus.vocabulary.eos_id
    assert platform.python_version() in " ".join(corpus.notes)
