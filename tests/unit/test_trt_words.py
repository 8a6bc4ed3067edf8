"""What is said of models with TensorRT's own operators of quantization."""

from __future__ import annotations

import pytest

import trt_nets
from rtlab.analyses.cards.card import get_family, shorten_op
from rtlab.analyses.findings import summarize_findings
from rtlab.core.model import load
from rtlab.core.trt_operators import TRT_OPS
from rtlab.documents.glossary import glossary_terms
from rtlab.relation.work import works


def test_the_note_on_quantization_names_the_operators() -> None:
    note = summarize_findings(load(trt_nets.make_nvfp4()[0])).note
    assert "Quantized by TensorRT's own operators (TRT_FP4DynamicQuantize)" in note


@pytest.mark.parametrize("op", sorted(TRT_OPS))
def test_cards_and_the_glossary_know_every_operator(op: str) -> None:
    assert get_family(op) == "quantize"
    assert shorten_op(op) in {"Q", "DQ", "Q/DQ"}
    assert any(op in term[2:] for term in glossary_terms())


def test_what_they_compute_and_move_is_counted() -> None:
    """By hand: two steps for each of 2 x 32 x 64 numbers to dequantize, four to quantize them in blocks."""
    model = load(trt_nets.make_mxfp8()[0])
    table = works(model)
    numbers = 2 * 32 * 64
    assert [4 * numbers, 2 * numbers] == [table[n].flops for n in ("x/Q", "x/DQ")]
    # Numbers of four bytes in; of one byte out, and a scale of one byte for each 32.
    assert (4 * numbers, numbers + numbers // 32) == (table["x/Q"].read, table["x/Q"].written)
