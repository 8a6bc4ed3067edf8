"""What ONNX Runtime's CUDA provider did on a real GPU, and that the documentation tells the same."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
FOUND = json.loads((ROOT / "tests" / "data" / "cuda-h100.json").read_text(encoding="utf-8"))
MODELS = FOUND["models"]


@pytest.mark.parametrize("name", MODELS)
def test_the_variant_called_fp32_was_fp32_and_that_called_tf32_the_providers_default(name) -> None:
    """An FP32 product has 24 bits and a TF32 product 11: forty decibels lie between the two."""
    row = MODELS[name]
    assert row["default"]["sqnr_db"] == row["tf32"]["sqnr_db"]
    assert 80 > row["tf32"]["sqnr_db"]
    assert 110 < row["fp32"]["sqnr_db"]


def test_fp32_costs_twice_the_time_of_tf32_where_products_dominate() -> None:
    """What the switch is for; seen where the GPU is busy, with large batches."""
    for name, size in (("resnet50", "32"), ("bert", "32"), ("mlp_4096x6", "1024")):
        fp32, tf32 = (MODELS[name][p]["milliseconds"][size][1] for p in ("fp32", "tf32"))
        assert 1.8 < fp32 / tf32 < 2.6


def test_an_endless_loop_ended_within_a_second_of_cancel() -> None:
    """On the GPU as on the CPU."""
    loop = FOUND["endless loop"]
    assert 1 > max(*loop["outputs"], *loop["profile"])
    assert 1 <= loop["limit of 1 s"] < 2


def test_the_documentation_tells_these_numbers() -> None:
    """A table that is typed by hand drifts."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for name, row in MODELS.items():
        size = max(row["fp32"]["milliseconds"], key=int)
        small = name.startswith("digits")
        cells = []
        for precision in ("default", "fp32", "tf32", "fp16"):
            if precision not in row:
                cells.append("—")
                continue
            time = "" if small else f", {row[precision]['milliseconds'][size][1]:.1f} ms"
            cells.append(f"{row[precision]['sqnr_db']:.0f} dB{time}")
        title = "six products of 4096²" if name.startswith("mlp") else name
        title += "" if small else f", batch {size}"
        assert f"| {title} | {' | '.join(cells)} |" in text
    differences = {
        precision: [r[precision]["sqnr_db"] - r[precision]["emulated_db"] for r in FOUND["studies"].values()]
        for precision in ("tf32", "fp16")
    }
    low, high = (round(f(differences["tf32"])) for f in (min, max))
    assert f"tf32 was {-low} dB below to {high} dB above its emulation" in text
    assert f"fp16 up to {-round(min(differences['fp16']))} dB below" in text
    assert FOUND["versions"]["gpu"].removesuffix(" HBM3") in text
