import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spanlm.data import pieces as text_pieces
from spanlm.data import text as data_text
from spanlm.data.config import WordRule
from spanlm.data.pieces import Piece, in_lines, lines_as_pieces, text_as_pieces
from spanlm.data.text import Text
from spanlm.data.tokenizer import Words, tokenize
from spanlm.data.vocabulary import EOS, UNK, Vocabulary
from spanlm.errors import InputError


def whole(pieces: list[Piece]) -> list[list[str]]:
    """The lines that pieces are cut from, after checking every piece's place."""
    lines: list[list[str]] = []
    closed = True
    for piece in pieces:
        assert piece.opens == closed
        if piece.opens:
            lines.append([])
        assert (piece.sentence, piece.start) == (len(lines), len(lines[-1]) + 1)
        lines[-1] += piece.words
        closed = piece.closes
    assert closed
    return lines


WORDS = st.text(st.sampled_from("ab猫é.'-é<"), min_size=1, max_size=6)


@settings(max_examples=25)
@given(
    lines=st.lists(st.lists(WORDS, max_size=8), min_size=1, max_size=6),
    limit=st.integers(1, 6),
    chunk=st.integers(1, 12),
    tokenizer=st.sampled_from(["whitespace", "words"]),
)
def test_a_file_in_any_chunks_is_its_lines(
    lines: list[list[str]], limit: int, chunk: int, tokenizer: WordRule, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "chunks.txt"
    texts = [" ".join(line) for line in lines]
    path.write_text("".join(f"{line}\n" for line in texts), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(data_text, "CHUNK_BYTES", chunk)
        patch.setattr(text_pieces, "WORDS", limit)
        read = list(text_as_pieces(Text(path), Words(tokenizer)))
        held = list(lines_as_pieces(texts, Words(tokenizer)))
    assert read == held
    assert whole(read) == [tokenize(line, tokenizer) for line in texts]
    assert all(1 <= len(piece.words) <= limit or (piece.opens and piece.closes) for piece in read)


def test_lines_in_memory_keep_the_same_rules() -> None:
    with pytest.raises(InputError, match="<eos> is reserved"):
        list(lines_as_pieces(["the <eos> cat"], Words("whitespace")))
    # lines of an open file bring their ends along
    assert whole(list(lines_as_pieces(["the cat\n", "sat\r\n"], Words("whitespace")))) == [["the", "cat"], ["sat"]]


VOCABULARY = Vocabulary((EOS, UNK, "He", "he", ".", "!", ")", '"'))
SPOKEN = st.lists(st.sampled_from(["He", "he", ".", "!", ")", '"', "Zebra"]), max_size=12)


@settings(max_examples=25)
@given(lines=st.lists(SPOKEN, min_size=1, max_size=5), limit=st.integers(1, 6), longer=st.integers(1, 6))
def test_sentences_hold_the_words_of_their_lines_however_a_line_comes_in(
    lines: list[list[str]], limit: int, longer: int
) -> None:
    texts = [" ".join(line) for line in lines]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_pieces, "WORDS", limit)
        pieces = list(lines_as_pieces(texts, Words("whitespace")))
        patch.setattr(text_pieces, "WORDS", longer)
        found = list(in_lines(pieces, "sentences", VOCABULARY))
        whole_lines = list(in_lines(lines_as_pieces(texts, Words("whitespace")), "sentences", VOCABULARY))
    assert found == whole_lines, "where a long line was cut before changes nothing"
    opens = True
    for piece in found:
        assert piece.opens == opens
        assert len(piece.words) <= longer or (piece.opens and piece.closes)
        assert piece.words == lines[piece.sentence - 1][piece.start - 1 :][: len(piece.words)]
        opens = piece.closes or piece.blank
    assert opens
    blank = [piece for piece in found if piece.blank]
    assert [piece.sentence for piece in blank] == [n for n, line in enumerate(lines, 1) if not line]
    assert not any(piece.closes for piece in blank)
    assert [word for piece in found for word in piece.words] == [word for line in lines for word in line]


def test_sentences_of_a_line() -> None:
    pieces = list(in_lines(lines_as_pieces(["He . He he !", "", "he"], Words("whitespace")), "sentences", VOCABULARY))
    assert pieces == [
        Piece(1, 1, ["He", "."], opens=True, closes=True),
        Piece(1, 3, ["He", "he", "!"], opens=True, closes=True),
        Piece(2, 1, [], opens=True, closes=False),
        Piece(3, 1, ["he"], opens=True, closes=True),
    ]
