"""The table of processors, and how one is found or given."""

from __future__ import annotations

import pytest

from rtlab.core.peaks import TABLE, Peaks, resolve_peaks
from rtlab.errors import VariantError

ROWS = pytest.mark.parametrize("row", TABLE, ids=lambda r: r.name)
MINE = Peaks("mine", 1e11, {"fp32": 1e12}, {"fp16": 4e12})


@ROWS
def test_the_cores_do_two_operations_per_lane_and_clock(row: Peaks) -> None:
    """64 lanes of FP32 in a multiprocessor up to 8.0, 128 from 8.6 on: an independent way to the same number."""
    lanes = 64 if float(row.capability) <= 8.0 else 128
    assert 2 * lanes * row.multiprocessors * row.clock == pytest.approx(row.cores["fp32"], rel=0.03)
    assert 64 * 8 * row.multiprocessors * row.clock == pytest.approx(row.cores["int8"], rel=0.003)
    assert row.cores["fp16"] / row.cores["fp32"] == pytest.approx(_PACKED.get(row.capability, 1), rel=0.01)


#: FP16 of the cores by their FP32; 1 from 8.6 on but where two stand in a register.
_PACKED = {"7.0": 2, "7.5": 2, "8.0": 4, "8.7": 2, "9.0": 2, "10.0": 2}
#: Dense multiply-accumulates of FP16 with FP16 sums, of one multiprocessor in a clock.
_DENSE = {
    "7.0": 512, "7.5": 512, "8.0": 1024, "8.6": 512, "8.7": 1024, "8.9": 512, "9.0": 2048, "10.0": 4096, "11.0": 4096,
    "12.0": 512,
}  # fmt: skip
#: MHz of the matrix units, where it is not that of the cores: Hopper's whitepaper; of B200 it follows from its peaks.
_MATRIX_CLOCK = {"H100 SXM": 1830, "H200": 1830, "H100 PCIe": 1620, "B200": 1856}
#: Products with sums of FP32 are half as fast on a GeForce, and so is TF32.
_GEFORCE = {"RTX 3060 Laptop", "RTX 3090", "RTX 4090", "RTX 5090"}
#: Bits of the memory's bus, and Gbit/s of each.
_BUS = {
    "T4": (256, 10), "V100": (4096, 1.754), "V100 PCIe": (4096, 1.754), "A10": (384, 12.5), "A100 40GB": (5120, 2.43),
    "A100 80GB SXM": (5120, 3.186), "A100 80GB PCIe": (5120, 3.024), "L4": (192, 12.5), "L40S": (384, 18),
    "H100 SXM": (5120, 5.23), "H100 PCIe": (5120, 3.186), "H200": (6144, 6.25), "B200": (7680, 7.992),
    "TITAN RTX": (384, 14), "RTX 3060 Laptop": (192, 14), "RTX 3090": (384, 19.5), "RTX 4090": (384, 21),
    "RTX 5090": (512, 28), "Jetson AGX Orin": (256, 6.4), "Jetson Orin NX 16GB": (128, 6.4),
    "Jetson Orin Nano 8GB": (128, 4.266), "Jetson Thor": (256, 8.533),
}  # fmt: skip


@ROWS
def test_matrix_units_do_what_their_number_and_their_clock_allow(row: Peaks) -> None:
    """Without sparsity: a rate of the data sheet that counts it would be twice this one."""
    clock = _MATRIX_CLOCK.get(row.name, row.clock / 1e6) * 1e6
    fp16 = 2 * _DENSE[row.capability] * row.multiprocessors * clock
    sums = 0.5 if row.name in _GEFORCE else 1.0
    by_type = {
        "fp16": 1, "bf16": sums, "tf32": sums / 2, "int8": 2, "fp8": 2, "int4": 4, "fp4": 4,
    }  # fmt: skip
    for precision, rate in row.tensor.items():
        assert by_type[precision] * fp16 == pytest.approx(rate, rel=0.03), precision


@ROWS
def test_the_bandwidth_is_the_width_of_the_bus_by_its_rate(row: Peaks) -> None:
    bits, rate = _BUS[row.name]
    assert bits * rate * 1e9 / 8 == pytest.approx(row.bandwidth, rel=0.02)


@ROWS
def test_precisions_are_those_of_the_generation(row: Peaks) -> None:
    """TF32 and BF16 came with 8.0, FP8 with 8.9, FP4 with 10.0; INT4 went with 9.0."""
    capability = float(row.capability)
    assert (capability >= 8.0) == ("bf16" in row.tensor) == ("tf32" in row.tensor)
    assert (capability >= 8.9) == ("fp8" in row.tensor)
    assert (capability >= 10.0) == ("fp4" in row.tensor)
    assert capability < 9.0 or "int4" not in row.tensor
    assert (capability > 7.0) == ("int8" in row.tensor)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("NVIDIA GeForce RTX 3060 Laptop GPU", "RTX 3060 Laptop"), ("NVIDIA TITAN RTX", "TITAN RTX"),
        ("NVIDIA A100 80GB PCIe", "A100 80GB PCIe"), ("NVIDIA A100-SXM4-80GB", "A100 80GB SXM"),
        ("NVIDIA H100 80GB HBM3", "H100 SXM"), ("Tesla V100-SXM2-16GB", "V100"),
        ("Tesla V100-PCIE-16GB", "V100 PCIe"), ("NVIDIA A100 80 GB PCIe", "A100 80GB PCIe"),
        ("rtx3090", "RTX 3090"), ("orin nx", "Jetson Orin NX 16GB"), ("orin", "Jetson AGX Orin"),
    ],
)  # fmt: skip
def test_a_name_of_a_driver_or_a_person_is_found(text: str, name: str) -> None:
    assert name == resolve_peaks(text).name


@pytest.mark.parametrize(
    "text",
    [
        "NVIDIA GeForce RTX 3090 Ti", "NVIDIA GeForce RTX 4090 Laptop GPU", "NVIDIA GeForce RTX 3060",
        "NVIDIA L40", "NVIDIA A10G", "NVIDIA H100 NVL", "Voodoo 2", "",
    ],
)  # fmt: skip
def test_another_product_is_not_taken_for_one_of_the_table(text: str) -> None:
    with pytest.raises(VariantError):
        resolve_peaks(text)


@pytest.mark.parametrize(
    "wrong",
    [{"bandwidth": float("inf")}, {"bandwidth": float("nan")}, {"tensor": {"fp16": -1.0}}, {"cores": {"fp32": 0}},
     {"multiprocessors": 0}],
)  # fmt: skip
def test_a_peak_that_is_no_positive_number_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(VariantError, match="positive number"):
        Peaks(**{"name": "x", "bandwidth": 1e11, "cores": {"fp32": 1e12}} | wrong)


def test_a_type_without_a_unit_runs_as_a_wider_one() -> None:
    a100 = resolve_peaks("A100")
    assert (312e12, "fp16") == a100.rate("fp8", matrix=True)
    assert (156e12, "tf32") == a100.rate("tf32", matrix=True)
    assert (19.5e12, "fp32") == a100.rate("tf32", matrix=False)
    assert (78e12, "fp16") == a100.rate("fp8", matrix=False)
    assert (8.1e12, "fp32") == resolve_peaks("T4").rate("tf32", matrix=True)
    assert (1e12, "fp32") == MINE.rate("nonsense", matrix=True)
    assert (4e12, "fp16") == MINE.rate("int8", matrix=True)
    # V100 has no matrix unit for INT8: kernels use dot products of four bytes.
    assert (pytest.approx(62.8e12), "int8") == resolve_peaks("V100").rate("int8", matrix=True)
