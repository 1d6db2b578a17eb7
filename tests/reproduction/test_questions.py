"""Which questions a table asks."""

from __future__ import annotations

from pathlib import Path

import pytest

from spanlm.errors import InputError
from spanlm.reproduction.questions import find_questions

QUESTION = "".join(f"{n} a b .\n" for n in range(1, 21)) + "21 a XXXXX .\tb\t\ta|b\n\n"


def test_files_that_cannot_be_asked_are_refused_before_anything_is_trained(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nowhere_NE_test\.txt"):
        find_questions(None, (tmp_path / "nowhere_NE_test.txt",))


def test_a_name_must_tell_the_word_class(tmp_path: Path) -> None:
    unnamed, named = tmp_path / "mine.txt", tmp_path / "mine_CN_test.txt"
    unnamed.write_text(QUESTION)
    named.write_text(QUESTION)
    with pytest.raises(InputError, match=r"mine\.txt.*NE, CN, V, P"):
        find_questions(None, (named, unnamed))
    assert find_questions(None, (named,)) == (named,)
