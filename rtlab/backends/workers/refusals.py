"""Words of TensorRT and CUDA, turned into errors that say what to do.

The sentences matched here were read off TensorRT-RTX 1.7.1 (on a machine without a driver) and off public reports of
TensorRT 7 to 10. In "expecting compute 8.6 got compute 7.5" the first is what is here, the second what the plan is for.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

from rtlab.backends.workers.driver import Device
from rtlab.errors import BackendError, ReadError, RtlabError, RunError, Unavailable

_DAMAGED = re.compile(
    r"magic ?tag|header\.size == blobSize|bufferSize >= minBufferSize|empty memory buffer", re.IGNORECASE
)
#: What a plan was built for that is not here, by what the binding says of it, the surest first.
_BUILT = {
    r"expecting library version [\d.]+ got ([\d.]+)": "with {}",
    r"created with \S+ version (\d[\d.]*), but the current runtime is": "with {}",
    r"Current Version: (\d+), Serialized Engine Version: (\d+)": (
        "with another version (serialization version {1}, here {0})"
    ),
    r"(?i)version tag does not match|incompatible serialization version|newer plan file|the current runtime is": (
        "with another version"
    ),
    r"expecting compute [\d.]+ got compute ([\d.]+)": "for compute capability {}",
}
_INCOMPATIBLE = re.compile(r"incompatible device|compute capability", re.IGNORECASE)
#: Operators that TensorRT runs, by a layer or a plugin of its own, and TensorRT-RTX 1.7 does not: none of the plugins
#: of TensorRT is in it, and NMS has no runner.
_IN_TENSORRT = frozenset({"NonMaxSuppression", "NonZero", "RoiAlign"})
_NO_DRIVER = re.compile(
    r"cudaError (?:3|35|100|803|804)\b|CUDA Error: (?:3|35|100|803|804)\b|no CUDA-capable device"
)
#: What a release logs beside the cause, on a machine without a driver, although it compiles there.
_DRIVER = re.compile(r"catchCudaError|Error Code 1: Cuda Runtime|cudaError \d+\b|CUDA driver version")
#: ``A::b: Error Code 4: API Usage Error (the words. In place at /source.cpp:1)``
_CODED = re.compile(r"Error Code \d+: [\w ]+? ?\((?P<words>.*?)(?: In \S+ at \S+:\d+)?\)$")
#: ``Assertion failed: condition: the words`` or ``condition && "the words"``
_ASSERTED = re.compile(r'^(?:Assertion failed: .*\S: |.*&& ")(?P<words>[A-Z][^"]*)"?\.?$')
_NO_MEMORY = re.compile(
    r"out ?of ?memory|cudaError 2\b|CUDA Error: 2\b|cudaErrorMemoryAllocation", re.IGNORECASE
)
_REBUILD = (
    "A plan runs only with the version and on the kind of GPU that it was built for: build it again from its ONNX "
    "model, or, where it does run, export its layers with trtexec --exportLayerInfo=layers.json "
    "--profilingVerbosity=detailed, which rtlab reads anywhere."
)


def extract_cause(message: str, *, gpu: bool) -> str:
    """The words of a message that tell why a node or a network was refused, without places in the source.

    Args:
        message: The message, of one or more lines.
        gpu: Whether a GPU was asked for; otherwise lines about the driver, which a build without a GPU does not need,
            are left out.

    Returns:
        One line; empty where the message gives no reason.
    """
    lines = [" ".join(line.split()) for line in message.splitlines()]
    lines = [line for line in lines if line not in {"", "false"} and (gpu or not _DRIVER.search(line))]
    coded_messages = [m["words"] for line in lines if (m := _CODED.search(line))]
    # Behind "Invalid Node" stands what is invalid about it.
    causes = coded_messages or [line for line in lines if not line.startswith("Invalid Node")] or lines
    words = [m["words"] if (m := _ASSERTED.match(line)) else line for line in causes]
    return " ".join(word.rstrip(".") for word in dict.fromkeys(words))


def explain_kind(op: str, why: str, compiler: str) -> str:
    """Which kind of operator one is that the parser or the builder refuses, in a few words.

    Args:
        op: The operator.
        why: What the binding says, "unsupported" where it says nothing.
        compiler: Its product.
    """
    if op == "EPContext":
        return "an engine that ONNX Runtime compiled for itself, and no operator"
    if op == "TRT_FP4QDQ":
        return (
            "a weight that ModelOpt stores in four bits at the end of its export, which was not reached here"
        )
    if op in _IN_TENSORRT and compiler != "TensorRT":
        return f"TensorRT has it, {compiler} does not"
    if "plugin" in why.lower():
        owner = "a plugin of TensorRT, and " if op.endswith("_TRT") else ""
        return f"{owner}{compiler} has neither an operator nor a plugin of this name here"
    return "TensorRT has no such operator" if why == "unsupported" else why


def drop_driver_lines(text: str) -> str:
    """Text of a build that asked for no GPU, less the lines about its driver."""
    return "\n".join(line for line in text.splitlines() if not _DRIVER.search(line))


def create_open_error(
    error_prefix: str, lines: list[str], compiler: str, device: Device | None
) -> RtlabError:
    """Why a plan was not deserialized, from the lines that the binding logged.

    ``compiler`` is what is here, such as ``TensorRT 10.16.1``.
    """
    text, details = " ".join(lines), "\n".join(lines)
    installation = f"{compiler} on {device.name} (sm{device.sm})" if device else compiler
    if _DAMAGED.search(text):
        return ReadError(
            f"{error_prefix}: it is no whole plan of {compiler}, but another compiler's plan, another kind of file, or "
            "a part of one. Give the file that the build wrote; layers as JSON are read with rtlab.read(layers=...).",
            details=details,
        )
    built = ""
    for pattern, words in _BUILT.items():
        if match := re.search(pattern, text):
            built = words.format(*match.groups())
            break
    # A machine without a driver logs that it skips this check.
    if not built and _INCOMPATIBLE.search(text) and not _NO_DRIVER.search(text):
        built = "for another GPU"
    if built:
        return Unavailable(
            f"{error_prefix}: it was built {built}, and here is {installation}. {_REBUILD}", details=details
        )
    return create_run_error(error_prefix, "the plan was not accepted", lines)


def create_run_error(error_prefix: str, what: str, lines: list[str]) -> BackendError:
    """A failure of the driver or of TensorRT while running, from what was logged."""
    text, details = " ".join((what, *lines)), "\n".join(lines)
    if _NO_DRIVER.search(text):
        return Unavailable(
            f"{error_prefix}: no NVIDIA driver or GPU is found that this CUDA release can use. Install or update the "
            'driver (nvidia-smi shows it), or choose backend="onnxruntime".',
            details=details,
        )
    if _NO_MEMORY.search(text):
        return RunError(
            f"{error_prefix}: the GPU has not enough free memory. Close what else uses it (nvidia-smi lists it), or "
            "take smaller batches, fewer streams or a smaller model.",
            details=details,
        )
    reason = f": {lines[0]}" if lines else ", and TensorRT gives no reason"
    return RunError(
        f"{error_prefix}: {what}{reason} See the error's details, run rtlab doctor, or build the engine again.",
        details=details,
    )


@contextlib.contextmanager
def translate_errors(error_prefix: str, lines: list[str]) -> Iterator[None]:
    """Let errors of the CUDA wrapper leave as rtlab's."""
    from polygraphy.exception import PolygraphyException

    try:
        yield
    except (PolygraphyException, OSError) as error:
        if isinstance(error, OSError) or "Could not find the CUDA runtime" in str(error):
            raise Unavailable(
                f"{error_prefix}: the CUDA runtime library is not found. Run pip install nvidia-cuda-runtime-cu12 (or "
                "the one of your CUDA release), or add its folder to LD_LIBRARY_PATH.",
                details=str(error),
            ) from error
        raise create_run_error(error_prefix, str(error).split(". To figure out")[0], lines) from error
