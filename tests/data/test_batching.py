import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from spanlm.data.batching import DocumentBatcher, Segment, make_batcher
from spanlm.data.config import BatchingKind, SentenceRules, StreamRules
from spanlm.data.token_files import TokenFile
from tests.cases import rest_slow

EOS_ID = 0
KINDS: tuple[BatchingKind, ...] = ("streams", "documents", "sentences")
DRAWN = StreamRules(length_spread=2.0, short_share=0.2, longest_over=3, partial_shuffle=True)
HOW: list[tuple[BatchingKind, dict[str, Any]]] = [
    *((kind, {}) for kind in KINDS),
    ("streams", {"streams": DRAWN}),
    ("streams", {"streams": StreamRules(length_spread=2.0)}),
    ("documents", {"shuffle": True}),
    ("documents", {"whole": False}),
    ("documents", {"whole": False, "shuffle": True}),
    ("sentences", {"shuffle": True}),
    ("sentences", {"shuffle": True, "sentences": SentenceRules(order="bucketed")}),
]


def token_file(lines: list[tuple[int, bool]]) -> TokenFile:
    """Words count up from 1, so that each says where it stands."""
    ids: list[int] = []
    documents = [0]
    words = itertools.count(1)
    for length, starts in lines:
        if starts and ids:
            documents.append(len(ids))
        ids += [next(words) for _ in range(length)] + [EOS_ID]
    return TokenFile(np.array(ids, np.int32), np.array(documents, np.int64))


# lines of a few words, and which of them start a document
CORPORA = st.lists(st.tuples(st.integers(0, 6), st.booleans()), min_size=1, max_size=14).map(token_file)
SIZES = st.integers(1, 9)


def assert_same(found: list[Segment], expected: list[Segment]) -> None:
    assert [one.rate_share for one in found] == [other.rate_share for other in expected]
    for one, other in zip(found, expected, strict=True):
        for name in ("inputs", "targets", "mask", "reset"):
            assert torch.equal(getattr(one, name), getattr(other, name))
        assert torch.equal(one.place[one.mask], other.place[other.mask])


def read_streams(segments: list[Segment], batch_size: int) -> list[list[tuple[list[int], list[int]]]]:
    """Return, for each stream, the (inputs, targets) between its resets, without padding."""
    streams: list[list[tuple[list[int], list[int]]]] = [[] for _ in range(batch_size)]
    for segment in segments:
        for b, stream in enumerate(streams):
            if segment.reset[b]:
                stream.append(([], []))
            real = segment.mask[:, b]
            if real.any():
                stream[-1][0].extend(segment.inputs[real, b].tolist())
                stream[-1][1].extend(segment.targets[real, b].tolist())
    return streams


@pytest.mark.parametrize(("kind", "options"), rest_slow(HOW, always=5), ids=lambda part: str(part)[:40])
@given(tokens=CORPORA, batch_size=SIZES, length=st.integers(5, 9), seed=st.integers(0, 3), start=st.integers(0, 12))
def test_every_token_is_a_target_exactly_once_from_any_start(
    kind: BatchingKind, options: dict[str, Any], tokens: TokenFile, batch_size: int, length: int, seed: int, start: int
) -> None:
    batcher = make_batcher(kind, tokens, EOS_ID, batch_size=batch_size, length=length, **options)
    segments = list(batcher.segments(seed))
    found = torch.cat([segment.targets[segment.mask] for segment in segments])
    assert sorted(found.tolist()) == sorted(tokens.ids.tolist())
    assert batcher.targets == len(tokens) == len(found)
    assert batcher.count(seed) == len(segments)
    for index, segment in enumerate(segments):
        steps = segment.inputs.shape[0]
        assert segment.inputs.shape == segment.targets.shape == segment.mask.shape == (steps, batch_size)
        assert segment.reset.shape == (batch_size,)
        assert segment.inputs.dtype == segment.targets.dtype == torch.int64
        assert segment.mask.dtype == segment.reset.dtype == torch.bool
        assert segment.mask.any(1).all(), "a step of padding only"
        assert steps <= length or kind == "sentences" or "streams" in options
        assert kind != "streams" or segment.reset.tolist() == [index == 0] * batch_size
        assert not segment.inputs[~segment.mask].any() and not segment.targets[~segment.mask].any()
        # padding comes after what is real
        assert (segment.mask.int().diff(dim=0) <= 0).all()
    assert_same(list(batcher.segments(seed, start)), segments[start:])


@pytest.mark.parametrize(("kind", "options"), HOW, ids=lambda part: str(part)[:40])
def test_segments_depend_on_the_seed_alone_and_share_no_memory(kind: BatchingKind, options: dict[str, Any]) -> None:
    tokens = token_file([(length % 5, True) for length in range(60)])
    before = tokens.ids.copy()
    batcher = make_batcher(kind, tokens, EOS_ID, batch_size=3, length=7, **options)
    first = list(batcher.segments(seed=1))
    torch.manual_seed(1)
    np.random.seed(1)
    states = torch.get_rng_state(), np.random.get_state()[1].tolist()  # type: ignore[index]
    again = []
    for segment in batcher.segments(seed=1):
        parts = {name: getattr(segment, name) for name in ("inputs", "targets", "mask", "reset")}
        again.append(replace(segment, **{name: part.clone() for name, part in parts.items()}))
        for part in parts.values():
            part.zero_()
    assert_same(first, again)
    assert (tokens.ids == before).all()
    assert torch.equal(states[0], torch.get_rng_state())
    assert states[1] == np.random.get_state()[1].tolist()  # type: ignore[index]
    drawn = bool({"shuffle", "streams"} & set(options))
    others = [next(batcher.segments(seed=seed)).targets for seed in (2, 3)]
    assert all(torch.equal(first[0].targets, other) for other in others) != drawn


@given(tokens=CORPORA, batch_size=SIZES, length=SIZES, shuffle=st.booleans())
def test_each_document_opens_with_eos_after_a_reset(
    tokens: TokenFile, batch_size: int, length: int, shuffle: bool
) -> None:
    batcher = DocumentBatcher(tokens, EOS_ID, batch_size=batch_size, length=length, shuffle=shuffle)
    segments = list(batcher.segments(seed=5))
    edges = [*tokens.documents.tolist(), len(tokens)]
    expected = [tokens.ids[begin:end].tolist() for begin, end in itertools.pairwise(edges)]
    found = [document for stream in read_streams(segments, batch_size) for document in stream]
    assert sorted(targets for _, targets in found) == sorted(expected)
    assert all(inputs == [EOS_ID, *targets[:-1]] for inputs, targets in found)


@given(tokens=CORPORA, batch_size=SIZES, length=SIZES, shuffle=st.booleans())
def test_cut_documents_fill_streams_of_equal_length(
    tokens: TokenFile, batch_size: int, length: int, shuffle: bool
) -> None:
    """A piece lies in one document, opens with the true word before it, and few pieces are not a document's first."""
    ids, starts = [EOS_ID, *tokens.ids.tolist()], tokens.documents.tolist()
    batcher = DocumentBatcher(tokens, EOS_ID, batch_size=batch_size, length=length, shuffle=shuffle, whole=False)
    padded = sum(-(-(end - begin) // length) for begin, end in itertools.pairwise([*starts, len(tokens)]))
    assert batcher.count(7) == -(-padded // batch_size)
    later = 0
    for stream in read_streams(list(batcher.segments(7)), batch_size):
        for inputs, targets in stream:
            at = next(n for n, word in enumerate(tokens.ids.tolist()) if word == targets[0]) if targets[0] else None
            if at is None:
                continue  # a piece that opens with a line end: there are several of those
            document = max(start for start in starts if start <= at)
            end = min((start for start in starts if start > at), default=len(tokens))
            assert at + len(targets) <= end
            assert targets == tokens.ids[at : at + len(targets)].tolist()
            assert inputs == [EOS_ID if at == document else ids[at], *targets[:-1]]
            assert (at - document) % length == 0
            later += at != document
    assert later <= batch_size - 1
