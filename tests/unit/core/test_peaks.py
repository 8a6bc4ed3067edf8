"""The table of processors, and how one is found or given."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path

import pytest

from rtlab.core.peaks import TABLE, Peaks, peaks
from rtlab.errors import VariantError

ROWS = pytest.mark.parametrize("row", TABLE, ids=lambda r: r.name)
MINE = Peaks("mine", 1e11, {"fp32": 1e12}, {"fp16": 4e12})


@ROWS
def test_every_row_names_its_source_and_its_power(row: Peaks) -> None:
    assert row.source
    assert row.power
    assert re.fullmatch(r"\d+\.\d", row.capability)
    assert "reported" == row.origin


@ROWS
def test_halving_the_bits_doubles_the_rate_at_most(row: Peaks) -> None:
    """A data sheet that counts sparsity in one column and not in the next would break this."""
    order = [p for p in ("tf32", "bf16", "fp8", "fp4") if p in row.tensor]
    for wide, narrow in itertools.pairwise(order):
        # FP8 with FP16 sums stands beside BF16 with FP32 sums on GeForce.
        assert 1.5 <= row.tensor[narrow] / row.tensor[wide] <= 4.2
    if "fp16" in row.tensor and "int8" in row.tensor:
        assert 1.9 <= row.tensor["int8"] / row.tensor["fp16"] <= 2.1


@ROWS
def test_the_cores_do_two_operations_per_lane_and_clock(row: Peaks) -> None:
    """64 lanes of FP32 in a multiprocessor up to 8.0, 128 from 8.6 on: an independent way to the same number."""
    lanes = 64 if float(row.capability) <= 8.0 else 128
    assert 2 * lanes * row.multiprocessors * row.clock == pytest.approx(row.cores["fp32"], rel=0.09)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("NVIDIA GeForce RTX 3060 Laptop GPU", "RTX 3060 Laptop"),
        ("NVIDIA TITAN RTX", "TITAN RTX"),
        ("NVIDIA A100 80GB PCIe", "A100 80GB PCIe"),
        ("NVIDIA A100-SXM4-80GB", "A100 80GB SXM"),
        ("NVIDIA H100 80GB HBM3", "H100 SXM"),
        ("Tesla V100-SXM2-16GB", "V100"),
        ("rtx3090", "RTX 3090"),
        ("3090", "RTX 3090"),
        ("orin nx", "Jetson Orin NX 16GB"),
        ("orin", "Jetson AGX Orin"),
    ],
)
def test_a_name_of_a_driver_or_a_person_is_found(text: str, name: str) -> None:
    assert name == peaks(text).name


@pytest.mark.parametrize(
    "text",
    [
        "NVIDIA GeForce RTX 3090 Ti", "NVIDIA GeForce RTX 4090 Laptop GPU", "NVIDIA GeForce RTX 3060",
        "NVIDIA L40", "NVIDIA A10G", "NVIDIA H100 NVL", "Voodoo 2", "",
    ],
)  # fmt: skip
def test_another_product_is_not_taken_for_one_of_the_table(text: str) -> None:
    with pytest.raises(VariantError, match=r'rtlab\.Peaks\("my GPU"') as caught:
        peaks(text)
    assert f'"{text}"' in str(caught.value)


def test_a_name_that_fits_several_asks_for_one() -> None:
    with pytest.raises(VariantError, match='"Jetson AGX Orin", "Jetson Thor"'):
        peaks("jetson")


def test_peaks_of_ones_own_work_as_object_dictionary_and_file(tmp_path: Path) -> None:
    assert MINE is peaks(MINE)
    described = {"name": "mine", "bandwidth": 1e11, "cores": {"fp32": 1e12}, "tensor": {"fp16": 4e12}}
    assert MINE.tensor == peaks(described).tensor
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(described))
    assert "mine" == peaks(path).name == peaks(str(path)).name


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"name": "x"}', '{"name": "x", "bandwidth": 1, "cores": {"fp32": 1}, "speed": 2}',
             '{"name": "x", "bandwidth": 1, "cores": 3}', '{"name": "x", "bandwidth": -1, "cores": {"fp32": 1}}',
             '{"name": "x", "bandwidth": "fast", "cores": {"fp32": 1}}', '{"name": "x", "bandwidth": 1, "cores": {}}']
)  # fmt: skip
def test_a_bad_description_says_how_to_write_one(tmp_path: Path, text: str) -> None:
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(VariantError, match=r"fp32"):
        peaks(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(VariantError, match=r"none\.json"):
        peaks(tmp_path / "none.json")


def test_a_type_without_a_unit_runs_as_a_wider_one() -> None:
    a100 = peaks("A100")
    assert (312e12, "fp16") == a100.rate("fp8", matrix=True)
    assert (156e12, "tf32") == a100.rate("tf32", matrix=True)
    assert (19.5e12, "fp32") == a100.rate("tf32", matrix=False)
    assert (8.1e12, "fp32") == peaks("T4").rate("tf32", matrix=True)
    assert (1e12, "fp32") == MINE.rate("nonsense", matrix=True)
