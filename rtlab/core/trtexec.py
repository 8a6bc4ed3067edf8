"""The flags of ``trtexec`` as data: what each takes, and which releases know it. Commands of rtlab are made of them.

By the help of trtexec (``samples/common/sampleOptions.cpp`` of NVIDIA/TensorRT), TensorRT 8.0 to 11. Its sizes are in
MiB where no unit follows, and it reads one letter as a unit: B, K, M or G, each 1,024 times the one before. So
``workspace:1024MiB`` ends in B and is 1,024 bytes: 1,048,576 times less than it says.
"""

from __future__ import annotations

import dataclasses
import re
import shlex
from collections.abc import Mapping
from typing import Literal

from rtlab.errors import VariantError

Version = tuple[int, int]
#: What stands behind the name: nothing, one of ``words``, a file, a whole number, pools with their sizes, or what the
#: help calls a specification.
Kind = Literal["", "word", "file", "number", "sizes", "spec"]
_MIB = 1 << 20
_UNITS = {"": _MIB, "B": 1, "K": 1 << 10, "M": _MIB, "G": 1 << 30}
_SIZE = re.compile(r"(?P<number>\d+(?:\.\d+)?)(?P<unit>[A-Za-z]*)")
_SHAPES = re.compile(r".:(?:\d+(?:x\d+)*|scalar|)$")


@dataclasses.dataclass(frozen=True)
class Flag:
    """A flag: what it takes, the first release that knows it, and the first that does not any more."""

    name: str
    kind: Kind = ""
    words: tuple[str, ...] = ()
    since: Version = (8, 0)
    until: Version | None = None

    def is_supported(self, release: Version | None) -> bool:
        """Whether a release has it; True where the release is not told."""
        return release is None or (release >= self.since and (self.until is None or release < self.until))


#: Precision flags left with TensorRT 11, whose networks are typed by the model alone.
_TYPED: Version = (11, 0)
FLAGS: Mapping[str, Flag] = {
    flag.name: flag
    for flag in (
        Flag("onnx", "file"),
        Flag("saveEngine", "file"),
        Flag("loadEngine", "file"),
        Flag("exportLayerInfo", "file", since=(8, 2)),
        Flag("exportProfile", "file"),
        Flag("exportTimes", "file"),
        Flag("exportOutput", "file"),
        Flag("dumpProfile"),
        Flag("dumpLayerInfo", since=(8, 2)),
        Flag("separateProfileRun"),
        Flag("profilingVerbosity", "word", ("layer_names_only", "detailed", "none"), since=(8, 2)),
        Flag("verbose"),
        Flag("useCudaGraph"),
        Flag("stronglyTyped", since=(9, 0)),
        Flag("noTF32"),
        Flag("fp16", until=_TYPED),
        Flag("int8", until=_TYPED),
        Flag("calib", "file", until=_TYPED),
        Flag("layerPrecisions", "spec", since=(8, 2), until=_TYPED),
        Flag("precisionConstraints", "word", ("prefer", "obey", "none"), since=(8, 2), until=_TYPED),
        Flag("sparsity", "word", ("disable", "enable", "force")),
        Flag("minShapes", "spec"),
        Flag("optShapes", "spec"),
        Flag("maxShapes", "spec"),
        Flag("inputIOFormats", "spec"),
        Flag("outputIOFormats", "spec"),
        Flag("workspace", "number", until=(10, 0)),
        Flag("memPoolSize", "sizes", since=(8, 4)),
        Flag("builderOptimizationLevel", "number", since=(8, 6)),
        Flag("timingCacheFile", "file"),
    )
}


def format_flag(name: str, value: object = None, *, release: Version | None = None) -> str:
    """A flag as it is typed; quoted where a shell would part it.

    Args:
        name: Without dashes.
        value: What it takes: nothing, a text, a number, or sizes in bytes by pool.
        release: Major and minor number of the TensorRT that gets it, where it is known.

    Raises:
        VariantError: there is no such flag in that release, or it takes another value.
    """
    if value is None:
        text = f"--{name}"
    elif isinstance(value, Mapping):
        text = f"--{name}=" + ",".join(f"{pool}:{format_size(nbytes)}" for pool, nbytes in value.items())
    else:
        text = f"--{name}={value}"
    if wrong := check(text, release=release):
        raise VariantError(f'Cannot write "{text}" for trtexec: {wrong}')
    return shlex.quote(text) if value is not None else text


def format_command(*flags: str) -> str:
    """A command line of these flags."""
    return f"trtexec {' '.join(flags)}"


def format_size(nbytes: int) -> str:
    """Bytes as trtexec takes them: in MiB, rounded up."""
    return str(-(-nbytes // _MIB))


def parse_size(text: str) -> int | None:
    """What trtexec makes of a size, in bytes, by its first number and last letter; None where it refuses it."""
    match = _SIZE.fullmatch(text)
    if match is None:
        return None
    unit = match["unit"][-1:].upper()
    return int(float(match["number"]) * _UNITS[unit]) if unit in _UNITS else None


def find_misread_size(text: str) -> int | None:
    """The bytes of a size whose unit trtexec misreads, such as 1,024 of "1024MiB"; None where it reads it as meant."""
    match = _SIZE.fullmatch(text)
    return parse_size(text) if match is not None and len(match["unit"]) > 1 else None


def check(text: str, *, release: Version | None = None) -> str:
    """What is wrong with a flag as it is typed, and what to write; empty for a right one, or one without its value."""
    name, equals, value = text.removeprefix("--").partition("=")
    definition = FLAGS.get(name)
    if definition is None:
        return f"it has no such flag. Choose one of {', '.join(FLAGS)}."
    if not definition.is_supported(release):
        since, until = (".".join(map(str, v)) if v else "" for v in (definition.since, definition.until))
        when = f"TensorRT {since} and later" if not until else f"TensorRT {since} up to {until}, without it"
        return f"it belongs to {when}. Leave it out for another release."
    if not equals or value == "...":
        return ""
    return _check_value(definition, value)


def _check_value(definition: Flag, value: str) -> str:
    if definition.kind == "":
        return "it takes no value. Leave out what follows the sign."
    if definition.kind == "word" and value not in definition.words:
        return f"it takes one of {', '.join(definition.words)}. Choose one."
    if definition.kind == "number" and not value.isdigit():
        return "it takes a whole number, without a unit. Write the digits alone."
    if definition.kind == "sizes":
        return next((w for part in value.split(",") if (w := _check_pool(part))), "")
    if "Shapes" in definition.name and _SHAPES.search(value) is None:
        return "it takes shapes such as x:1x3x224x224. Part tensors by commas."
    return "" if value else "it takes a value. Write one behind the sign."


def _check_pool(part: str) -> str:
    pool, _, size_text = part.rpartition(":")
    if not pool:
        return "a pool and its size belong there. Write workspace:1024."
    if find_misread_size(size_text) is not None:
        return (
            f'it reads "{size_text}" as {find_misread_size(size_text):,} bytes. '
            "Write the number alone, which is in MiB."
        )
    return (
        ""
        if parse_size(size_text) is not None or size_text == "..."
        else f'"{size_text}" is no size. Write a number of MiB.'
    )
