"""Payloads as bytes: small, and read by Python and by the browser alike.

``python tests/unit/documents/test_payload.py`` writes the file that the front end's own test reads.
"""

from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path
from typing import TypedDict

from rtlab.analyses.calibration.pairs import PairUse
from rtlab.analyses.cards.picture import (
    Box,
    Detail,
    Edge,
    Graph,
    OpChip,
    Overlay,
    OverlayValue,
    Port,
    Repeats,
)
from rtlab.analyses.engine import Slice, Summary, Transition
from rtlab.analyses.reformats.reasons import Reformat
from rtlab.core.finding import Finding
from rtlab.documents.serialization import decode, encode, to_builtins
from rtlab.relation.mapping import Coverage, Pair
from rtlab.web.page.contract import EngineView

FILE = Path(__file__).parents[2] / "data" / "payload.json"

TITLES = (
    "/layer10/conv1/Conv_output_0", "/layer9/conv1/Conv_output_0", "/layer009/conv1/Conv_output_0",
    "12345678901234567890", "__proto__", "\u202eright to left", "🙂 模型", "<b>&amp;</b>", "line\nbreak\0", "",
)  # fmt: skip


class Both(TypedDict):
    """An engine, and what is told of it beside the picture."""

    view: EngineView
    summary: Summary | None
    findings: list[Finding]


def sample() -> Both:
    """Every type of field."""
    boxes = [
        Box(
            id=f"{i}:{title}", kind="layer", parent=i - 1, body="", op="kgen", family="shape", title=title,
            lines=[title] * (i % 3),
            chips=[
                OpChip(op="Conv", family="convolution", node=f"n{k}", role="bias" if k else "work", title="Conv")
                for k in range(i)
            ],
            precision="fp16", reads="int8" if i % 3 else "", writes="fp16", stream=-i * 100_000, slim=i % 2 == 0,
            inputs=[
                Port(name=f"v{i - k}", dtype="fp16", shape=f"1×{k}", format="", constant=k > 0)
                for k in range(i % 4)
            ],
            outputs=[], details=[],
        )
        for i, title in enumerate(TITLES)
    ]  # fmt: skip
    nodes = {
        title: OverlayValue(value=i * 0.25 - 1, spread=None if i % 2 else 0.5, shared=i + 1, note=f"note {i}")
        for i, title in enumerate(TITLES)
    }
    overlay = Overlay(id="time", title="Time", unit="ms", origin="measured", source="a CPU", best="low",
                      nodes=nodes, layers={})  # fmt: skip
    view = EngineView(
        variant="fp16@sm86",
        quantized=[
            PairUse(q="a", dq="b", value="v", weight=False, verdict="own layer", layers=("1:b",), note="a step")
        ],
        graph=Graph(
            id="fp16", title="Engine", subtitle="", boxes=boxes,
            edges=[Edge(source=i, target=i + 1, value=f"v{i}", label="1×8") for i in range(len(boxes) - 1)],
            repeats=[Repeats(title="2 × net", count=2, rows=[[0, 1]])],
            folded=False,
            later=False,
            details=[Detail(key="producer", value="pytorch 2.13")],
        ),
        pairs=[
            Pair(node=t, layer=f"{i}:{t}", evidence="declared", note="unsent", role="work" if i % 2 else "Q")
            for i, t in enumerate(TITLES)
        ],
        unmapped=[],
        overlays=[overlay, overlay],
        calibrator="entropy2",
        commands=["trtexec --onnx=m.onnx", "polygraphy convert m.onnx"],
        precisions={t: "fp16" if i % 2 else "int8" for i, t in enumerate(TITLES)},
        panels=["roofline", "memory"],
    )  # fmt: skip
    return Both(
        view=view,
        summary=Summary(
            kinds=(
                Slice(name="kgen", layers=TITLES[1:], milliseconds=1.5, share=0.75),
                Slice(name="", layers=TITLES[:1], milliseconds=None, share=None),
            ),
            precisions=(),
            transitions=(Transition(before="int8", after="fp16", layers=TITLES[:6], milliseconds=0.25),),
            reformats=(
                Reformat(
                    layer="0:a", tensor="v", before="fp32 · row major", after="int8", producer="", consumer="1:b",
                    source="type", cause="The layer after it reads int8.", fix="Quantize before it.", milliseconds=None,
                ),
            ),
            coverage=Coverage(
                nodes=9, all_nodes=10, explained=1, layers=8, all_layers=11, moves=2, declared=5, pairs=12,
            ),
            processor="GPU", source="trtexec, device not recorded", total=2.0, summed=2.5, ratio=1.25,
        ),
        findings=[
            Finding(
                id=f"mixed-{i}", rule="mixed", title="INT8 in, FP32 out", nodes=("a",), layers=(f"{i}:b",),
                microseconds=None if i else 0.5, cost="a layer", fix="Add a pair.", evidence="types", fixable=False,
            )
            for i in range(2)
        ],
    )  # fmt: skip


def test_what_the_front_end_reads_in_its_test_is_what_python_writes() -> None:
    """The two decoders are tested on one file, so they cannot drift apart."""
    kept = json.loads(FILE.read_text(encoding="utf-8"))
    data = base64.b64decode(kept["encoded"])
    assert to_builtins(sample()) == kept["payload"] == decode(data)
    # Compressors differ in their bytes, so what is compared is what they compressed.
    assert gzip.decompress(encode(sample())) == gzip.decompress(data)


def test_a_view_by_itself_has_its_pairs_as_objects() -> None:
    """Its graph is sent as it is; all else is converted."""
    view = sample()["view"]
    assert to_builtins(view) == decode(encode(view))
    assert {"node", "layer", "evidence", "role"} == set(decode(encode(view))["pairs"][0])


if __name__ == "__main__":
    encoded = base64.b64encode(encode(sample())).decode("ascii")
    text = json.dumps({"encoded": encoded, "payload": to_builtins(sample())}, ensure_ascii=False, indent=1)
    FILE.write_text(f"{text}\n", encoding="utf-8")
