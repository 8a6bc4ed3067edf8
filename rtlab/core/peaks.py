"""Peak rates of processors, from published data sheets or measured: the roofs of a roofline."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Container, Mapping

from rtlab.core.phrases import quote_names
from rtlab.core.schema import Origin
from rtlab.errors import VariantError

#: What runs in place of a type that a processor has no unit for.
_INSTEAD = {
    "fp4": "fp8", "int4": "int8", "fp8": "fp16", "int8": "fp16", "bf16": "fp32", "fp16": "fp32", "tf32": "fp32",
}  # fmt: skip
#: Words that make another product of a name.
_OTHERS = {"ti", "super", "laptop", "mobile", "max", "q", "d", "nvl", "pro", "ada", "nano", "nx"}
_HOW = (
    'rtlab.Peaks("my GPU", bandwidth=936e9, cores={"fp32": 35.6e12}, tensor={"fp16": 142e12}, multiprocessors=82), '
    "with bytes and operations per second from its data sheet"
)


@dataclasses.dataclass(frozen=True)
class Peaks:
    """The peaks of one processor, dense: without what 2:4 sparsity would add.

    ``bandwidth`` is that of its memory in bytes/s. ``cores`` gives operations/s of the ordinary arithmetic units by
    precision and has at least ``fp32``; ``tensor`` those of the matrix units, empty without any. A multiply-accumulate
    is two operations. Of two rates of FP16 in a data sheet this is the higher one, that of FP16 sums. ``cache`` is the
    last-level cache in bytes, 0 where unknown, ``multiprocessors`` how many blocks of work run side by side, ``power``
    watts or modes that the numbers belong to. ``clock`` is the boost clock of the ordinary units in Hz, 0 where
    unknown; rates of matrix units include their own, lower clock. ``origin`` is ``reported`` for a data sheet and
    ``measured`` for a benchmark on this machine.

    Raises:
        VariantError: a peak is no positive number, or ``cores`` has no ``fp32``.
    """

    name: str
    bandwidth: float
    cores: Mapping[str, float]
    tensor: Mapping[str, float] = dataclasses.field(default_factory=dict)
    capability: str = ""
    multiprocessors: int = 1
    cache: float = 0.0
    clock: float = 0.0
    power: str = ""
    source: str = "given by the user"
    aliases: tuple[str, ...] = ()
    origin: Origin = "reported"

    def __post_init__(self) -> None:
        rates = {"bandwidth": self.bandwidth, "multiprocessors": self.multiprocessors}
        rates |= {**self.cores, **self.tensor}
        for key, rate in rates.items():
            if not isinstance(rate, (int, float)) or not math.isfinite(rate) or rate <= 0:
                raise VariantError(
                    f'Cannot use {key} "{rate}" of "{self.name}": a peak is a positive number. Describe it as {_HOW}.'
                )
        if "fp32" not in self.cores:
            raise VariantError(
                f'Cannot use the peaks of "{self.name}": its cores have no "fp32". Describe it as {_HOW}.'
            )

    def __repr__(self) -> str:
        return f"<Peaks {self.name}: {self.bandwidth / 1e9:.4g} GB/s, {self.cores['fp32'] / 1e12:.3g} TFLOP/s fp32>"

    def rate(self, precision: str, *, matrix: bool) -> tuple[float, str]:
        """Operations/s and the precision whose rate it is: a wider one where there is no unit for this one.

        Args:
            precision: Of the numbers that are read, in rtlab's words.
            matrix: Whether the matrix units can do it: convolutions and products, not pointwise or depthwise ones.
        """
        # V100 multiplies INT8 on its cores: a unit of this very precision goes before a wider one.
        if matrix and (unit := _find_unit(precision, {*self.tensor, *self.cores})) in self.tensor:
            return self.tensor[unit], unit
        unit = _find_unit(precision, self.cores)
        unit = unit if unit in self.cores else "fp32"
        return self.cores[unit], unit


def _find_unit(precision: str, units: Container[str]) -> str:
    """The precision itself where there is a unit for it, else the first wider one with a unit."""
    while precision not in units and precision in _INSTEAD:
        precision = _INSTEAD[precision]
    return precision


def _gpu(  # noqa: PLR0917 - a row of a table
    name: str,
    capability: str,
    multiprocessors: int,
    bandwidth: float,
    cache: float,
    clock: float,
    power: str,
    source: str,
    cores: Mapping[str, float],
    tensor: Mapping[str, float],
    *aliases: str,
) -> Peaks:
    """A row of the table: GB/s, MiB, MHz and tera-operations/s.

    Data sheets do not list INT8 without matrix units. Here every multiprocessor does 64 dot products of four bytes in a
    clock, which makes the 62.8 TOPS of V100; for the later ones no document was found that says so.
    """
    cores = {"int8": 64 * 8 * multiprocessors * clock * 1e6 / 1e12, **cores}
    return Peaks(
        name, bandwidth * 1e9, {k: v * 1e12 for k, v in cores.items()}, {k: v * 1e12 for k, v in tensor.items()},
        capability, multiprocessors, cache * 2**20, clock * 1e6, power, source, aliases,
    )  # fmt: skip


def _ampere(fp32: float) -> dict[str, float]:
    """Rates of a GeForce of the Ampere family: TF32 as fast as FP32, then twice by each halving, FP16 sums 4 times."""
    return {"tf32": fp32, "bf16": 2 * fp32, "fp16": 4 * fp32, "int8": 8 * fp32, "int4": 16 * fp32}


_TURING = "NVIDIA Turing GPU Architecture, WP-09183-001"
_VOLTA = "NVIDIA Tesla V100 data sheet; NVIDIA Tesla V100 GPU Architecture, WP-08608-001"
_A100 = "NVIDIA A100 Tensor Core GPU data sheet, 2188504"
_GA102 = "NVIDIA Ampere GA102 GPU Architecture whitepaper, V2"
_HOPPER = "NVIDIA H100 Tensor Core GPU Architecture whitepaper and data sheet"
_ORIN = (
    "NVIDIA Jetson Orin module data sheets; AGX Orin Series Technical Brief 1.2; GPU alone, without DLA; FP16 of the "
    "cores, which they do not list, as twice FP32"
)
_A100_TENSOR = {"tf32": 156, "bf16": 312, "fp16": 312, "int8": 624, "int4": 1248}
_H100_TENSOR = {"tf32": 494.7, "bf16": 989.4, "fp16": 989.4, "fp8": 1978.9, "int8": 1978.9}

#: Published peaks, dense, at the boost clock of the data sheet.
TABLE: tuple[Peaks, ...] = (
    _gpu("T4", "7.5", 40, 320, 4, 1590, "70 W", f"NVIDIA T4 data sheet; {_TURING}",
         {"fp32": 8.1, "fp16": 16.2}, {"fp16": 65, "int8": 130, "int4": 260}, "Tesla T4"),
    _gpu("V100", "7.0", 80, 900, 6, 1530, "SXM2, 300 W", _VOLTA,
         {"fp32": 15.7, "fp16": 31.4, "int8": 62.8}, {"fp16": 125}, "Tesla V100", "V100-SXM2"),
    _gpu("V100 PCIe", "7.0", 80, 900, 6, 1380, "250 W", _VOLTA, {"fp32": 14, "fp16": 28}, {"fp16": 112}),
    _gpu("A10", "8.6", 72, 600, 6, 1695, "150 W", "NVIDIA A10 data sheet",
         {"fp32": 31.2, "fp16": 31.2}, {"tf32": 62.5, "bf16": 125, "fp16": 125, "int8": 250, "int4": 500}),
    _gpu("A100 40GB", "8.0", 108, 1555, 40, 1410, "SXM4 400 W, PCIe 250 W", _A100,
         {"fp32": 19.5, "fp16": 78, "bf16": 39}, _A100_TENSOR, "A100-SXM4-40GB", "A100-PCIE-40GB", "A100"),
    _gpu("A100 80GB SXM", "8.0", 108, 2039, 40, 1410, "400 W", _A100,
         {"fp32": 19.5, "fp16": 78, "bf16": 39}, _A100_TENSOR, "A100-SXM4-80GB"),
    _gpu("A100 80GB PCIe", "8.0", 108, 1935, 40, 1410, "300 W", _A100,
         {"fp32": 19.5, "fp16": 78, "bf16": 39}, _A100_TENSOR, "A100 80GB"),
    _gpu("L4", "8.9", 58, 300, 48, 2040, "72 W", "NVIDIA L4 data sheet, halved where it counts sparsity",
         {"fp32": 30.3, "fp16": 30.3}, {"tf32": 60, "bf16": 121, "fp16": 121, "fp8": 242.5, "int8": 242.5}),
    _gpu("L40S", "8.9", 142, 864, 96, 2520, "350 W", "NVIDIA L40S data sheet",
         {"fp32": 91.6, "fp16": 91.6}, {"tf32": 183, "bf16": 362, "fp16": 362, "fp8": 733, "int8": 733}),
    _gpu("H100 SXM", "9.0", 132, 3350, 50, 1980, "700 W", _HOPPER,
         {"fp32": 66.9, "fp16": 133.8, "bf16": 133.8}, _H100_TENSOR, "H100 80GB HBM3", "H100"),
    _gpu("H100 PCIe", "9.0", 114, 2000, 50, 1755, "350 W", _HOPPER,
         {"fp32": 51.2, "fp16": 102.4, "bf16": 102.4},
         {"tf32": 378, "bf16": 756, "fp16": 756, "fp8": 1513, "int8": 1513}),
    _gpu("H200", "9.0", 132, 4800, 50, 1980, "SXM, 700 W", "NVIDIA H200 Tensor Core GPU data sheet",
         {"fp32": 66.9, "fp16": 133.8, "bf16": 133.8}, _H100_TENSOR),
    _gpu("B200", "10.0", 148, 7700, 126, 1965, "180 GB, 1000 W",
         "NVIDIA Blackwell data sheet, HGX B200, halved where it counts sparsity; clock and cache as drivers report; "
         "FP16 of the cores, which it does not list, as twice FP32",
         {"fp32": 75, "fp16": 150}, {"tf32": 1100, "bf16": 2250, "fp16": 2250, "fp8": 4500, "int8": 4500, "fp4": 9000}),
    _gpu("TITAN RTX", "7.5", 72, 672, 6, 1770, "280 W", _TURING,
         {"fp32": 16.3, "fp16": 32.6}, {"fp16": 130.5, "int8": 261, "int4": 522}),
    _gpu("RTX 3060 Laptop", "8.6", 30, 336, 3, 1425, "60 to 115 W: from 1283 to 1703 MHz, here at 1425 MHz",
         f"{_GA102}, rates of GA10x times 3840 cores at 1425 MHz; memory 192 bit at 14 Gbit/s",
         {"fp32": 10.9, "fp16": 10.9}, _ampere(10.9)),
    _gpu("RTX 3090", "8.6", 82, 936, 6, 1695, "350 W", _GA102, {"fp32": 35.6, "fp16": 35.6}, _ampere(35.6)),
    _gpu("RTX 4090", "8.9", 128, 1008, 72, 2520, "450 W", "NVIDIA Ada GPU Architecture whitepaper, V2",
         {"fp32": 82.6, "fp16": 82.6}, _ampere(82.6) | {"fp8": 660.6, "int8": 660.6}),
    _gpu("RTX 5090", "12.0", 170, 1792, 96, 2407, "575 W", "NVIDIA RTX Blackwell GPU Architecture whitepaper, V1.1",
         {"fp32": 104.8, "fp16": 104.8},
         {"tf32": 104.8, "bf16": 209.5, "fp16": 419, "fp8": 838, "int8": 838, "fp4": 1676}),
    _gpu("Jetson AGX Orin", "8.7", 16, 204.8, 4, 1300, "64 GB module, MAXN",
         f"{_ORIN}. The driver calls every Orin so: choose another module by name",
         {"fp32": 5.3, "fp16": 10.6}, {"tf32": 21.2, "bf16": 42.5, "fp16": 42.5, "int8": 85}, "AGX Orin", "Orin"),
    _gpu("Jetson Orin NX 16GB", "8.7", 8, 102.4, 2, 918, "25 W", _ORIN,
         {"fp32": 1.88, "fp16": 3.76}, {"tf32": 7.5, "bf16": 15, "fp16": 15, "int8": 30}, "Orin NX"),
    _gpu("Jetson Orin Nano 8GB", "8.7", 8, 68, 2, 625, "15 W, not the Super mode", _ORIN,
         {"fp32": 1.28, "fp16": 2.56}, {"tf32": 5.1, "bf16": 10.2, "fp16": 10.2, "int8": 20}, "Orin Nano"),
    _gpu("Jetson Thor", "11.0", 20, 273, 32, 1575, "T5000, 130 W",
         "NVIDIA Jetson Thor data sheet, T5000, halved where it counts sparsity; INT8, which it does not list, as FP8, "
         "FP16 of the cores as FP32, the cache as drivers report it",
         {"fp32": 8.06, "fp16": 8.06}, {"tf32": 129, "bf16": 258, "fp16": 258, "fp8": 517, "int8": 517, "fp4": 1035},
         "AGX Thor", "Thor"),
)  # fmt: skip


def resolve_peaks(source: str | Peaks) -> Peaks:
    """The peaks of a processor by its name in the table or in a driver, such as ``"NVIDIA GeForce RTX 3090"``.

    Peaks are returned as they are.

    Raises:
        VariantError: the table does not have it, or the name fits several.
    """
    if isinstance(source, Peaks):
        return source
    words = _split_words(str(source))
    names = [(_split_words(name), row) for row in TABLE for name in (row.name, *row.aliases)]
    # A driver's name is longer than the table's; a user's may be shorter.
    matches = [(len(n), row) for n, row in names if n <= words and not (words - n) & _OTHERS]
    longest = max((size for size, _ in matches), default=0)
    rows = {row.name: row for size, row in matches if size == longest}
    if not rows and words:
        own_names = [(_split_words(row.name), row) for row in TABLE]
        rows = {row.name: row for n, row in own_names if words <= n and not (n - words) & _OTHERS}
    if len(rows) == 1:
        return next(iter(rows.values()))
    if rows:
        raise VariantError(
            f'Cannot choose a GPU by "{source}": the table has {quote_names(rows)}. Choose one of them.'
        )
    raise VariantError(
        f'Cannot find the GPU "{source}": the table has {", ".join(r.name for r in TABLE)}. '
        f"Choose one, or give your own: {_HOW}."
    )


def _split_words(name: str) -> set[str]:
    """The distinctive words of a name; ``RTX3090`` and ``RTX 3090`` are the same."""
    plain = re.sub(r"\b(rtx|titan)(?=\d|rtx)", r"\1 ", name.lower())
    plain = re.sub(r"(\d) gb\b", r"\1gb", plain)
    noise = {"", "nvidia", "geforce", "gpu", "tesla", "graphics", "device"}
    return set(re.split(r"[^a-z0-9]+", plain)) - noise
