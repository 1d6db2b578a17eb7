"""What a span buffer costs on top of the AWD-LSTM: attention over its spans, and a second question to the head."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch

from spanlm.benchmark.awd import AWD_PTB, awd_trainer
from spanlm.benchmark.contenders import Size, synthetic_corpus, training_flops
from spanlm.benchmark.groups import SEGMENTS, Aim, Contender, precisions
from spanlm.models.memories import NoMemoryConfig, SpanBufferConfig

AWD_SNB = replace(
    AWD_PTB,
    name="AWD-LSTM PTB size tied, span buffer 512 / 8",
    model=replace(
        AWD_PTB.model,
        output_dropout=0.0,
        memory=SpanBufferConfig(buffer_size=512, span_length=8, dropout=AWD_PTB.model.output_dropout),
    ),
)


def span_buffer_group(size: Size, device: torch.device) -> Iterator[Contender]:
    """The model with its span buffer against the same model without."""
    corpus = synthetic_corpus(size, SEGMENTS)
    for precision in precisions(device):
        reference = f"no buffer, training {precision}"
        for name, chosen, flops, aims in (
            (reference, without_buffer(size), training_flops(without_buffer(size)), ()),
            (f"span buffer, training {precision}", size, buffer_flops(size), (Aim(reference, 1 / 1.5),)),
        ):
            step = awd_trainer(chosen, precision, str(device), corpus).step
            yield Contender(name, precision, step, flops, aims)


def without_buffer(size: Size) -> Size:
    """Return the same size without its buffer; what the head reads is dropped at the same rate."""
    buffer = _buffer(size)
    return replace(size, model=replace(size.model, memory=NoMemoryConfig(), output_dropout=buffer.dropout))


def buffer_flops(size: Size) -> float:
    """Floating-point operations of one token of training: with the head's second question and the spans carried over.

    They are projected forwards and give the projection a gradient, and need none themselves.
    """
    buffer, width = _buffer(size), size.model.encoder.output_size
    carried = (buffer.buffer_size - buffer.stride) / size.length
    again = 6.0 * size.vocabulary_size * width
    return training_flops(size) + again + 4.0 * carried * width * (buffer.attention_size or width)


def _buffer(size: Size) -> SpanBufferConfig:
    assert isinstance(size.model.memory, SpanBufferConfig)
    return size.model.memory
