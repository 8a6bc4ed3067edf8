"""Which file is which, by what is in it: a name tells nothing when it was chosen on another machine."""

from __future__ import annotations

import os
import re
import struct
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

from rtlab.backends.readers import contents, printed, reports, wrapping
from rtlab.core.inputs import open_input
from rtlab.errors import ReadError

#: Every kind of file, and what it is in words. ``reading.read`` takes them by these names.
KINDS = {
    "layers": "a layer file (trtexec --exportLayerInfo, or the engine inspector)",
    "profile": "a profile (trtexec --exportProfile)",
    "times": "times of inferences (trtexec --exportTimes)",
    "output": "output tensors (trtexec --exportOutput)",
    "metadata": "metadata of trex",
    "log": "a log of TensorRT, or messages",
    "cache": "a calibration cache of TensorRT",
    "model": "an ONNX model",
    "ort_profile": "a profile of ONNX Runtime",
    "ort_model": "an ONNX model that ONNX Runtime optimized",
    "results": "run results of Polygraphy",
    "archive": "an engine archive of trex",
    "build": "a recorded build (rtlab inspect --save)",
    "plan": "a serialized engine",
    "timing_cache": "a timing cache of TensorRT",
}
_HEAD = 1 << 16
#: ``ftrt`` is an engine for one release, ``vtrt`` one with its own runtime inside; ``ptrt`` begins a timing cache.
_PLANS = (b"ftrt", b"vtrt")
_TIMING_CACHE = b"ptrt"
#: Operator sets that ONNX Runtime declares in every model that it writes, and nobody else does.
_ORT = (b"com.microsoft.nchwc", b"com.microsoft.experimental", b"ai.onnx.preview.training")
#: Fields of ONNX's ModelProto and their wire types.
_FIELDS = {1: 0, 2: 2, 3: 2, 4: 2, 5: 0, 6: 2, 7: 2, 8: 2, 14: 2, 20: 2, 25: 2, 26: 2}
_MEMBERS = {"engine.trt", "build.txt", "build_cfg.json", "plan_cfg.json"}
_TOKEN = re.compile(r'"((?:[^"\\]|\\.)*)"(\s*:)?|[\[\]{}]', re.DOTALL)
_OBJECTS = {
    "build": {"rtlab_build"},
    "layers": {"Layers", "Bindings", "I/O Tensors"},
    "results": {"lst"},
    "metadata": {
        "performance_summary", "device_information", "model_options", "build_options", "inference_options",
        "ComputeCapability", "Compute Capability",
    },
}  # fmt: skip
_ROWS = {
    "profile": {"count", "timeMs", "averageMs", "medianMs", "percentage"},
    "times": {"computeMs", "latencyMs", "startEnqMs", "endEnqMs", "startComputeMs", "endComputeMs"},
    "output": {"dimensions", "values"},
    "ort_profile": {"cat", "ph", "dur"},
    "layers": {"LayerType", "Inputs", "Outputs", "TacticName", "TacticValue"},
    "metadata": {"ComputeCapability", "TotalMemory"},
}
#: The document of a saved study, which tells one.
STUDY_DOCUMENT = "study.json"
_CACHE = re.compile(r"TRT-\d+-\w*Calibration")
_LOG = re.compile(
    r"\[TRT\]|&&&& \w+ TensorRT|^\[[\d/]+-[\d:]+\] \[[VIWEF]\]|^\[[VIWEF]\] |^(?:\[[VIWEF]\] )?Original: \d+ layers"
    r"|^Registering tensor|^Adding network input|Engine Layer Information|^Applying generic optimizations",
    re.MULTILINE,
)
_VERBOSE = re.compile(
    r"\[V\]|Original: \d+ layers|^Registering tensor|Engine Layer Information|^\[TensorRT\] VERBOSE: |"
    r"^Layer\([^)\n]*\): .*, Tactic: ",
    re.MULTILINE,
)
#: What the lines of a log begin with where a piece of one bears no marks of a logger.
_SENTENCE = re.compile(
    r"^(?:(?:\[[^\[\]\n]{1,40}\] ?){0,3})(?:After [\w ()/-]+: \d+ layers|(?:\w+: )?Fusing \S.* with |Merging layers: |"
    r"Retargeting |Eliminating con[ct]atenation |Tactic: \S+ Time: |Tactic -?\d+ time |Fastest Tactic: |"
    r"-{5,} Timing |\*{5,} Autotuning )|^\[TensorRT\] [A-Z]+: ",
    re.MULTILINE,
)
#: And what trtexec tells of a run.
_RUN = re.compile(
    r"^(?:\[[^\[\]\n]{1,40}\] ?){0,3}(?:Average on \d+ runs - GPU latency: |GPU Compute Time: min = )",
    re.MULTILINE,
)
#: Keys that tell a piece of a JSON file whose beginning is cut off.
_PIECES = (
    ("layers", re.compile(r'"(?:LayerType|ParameterType|TacticValue|TacticName)"\s*:')),
    ("profile", re.compile(r'"(?:averageMs|medianMs|timeMs)"\s*:')),
    ("times", re.compile(r'"(?:computeMs|startEnqMs|startComputeMs)"\s*:')),
)


def detect_kind(path: Path) -> str:
    """The kind of a file, one of ``KINDS``; raises ``ReadError`` where it is none of them, or cannot be read."""
    with contents.open_file(path, f'Cannot read "{path}"') as file:
        head = file.read(_HEAD)
        if is_engine(head):
            return "plan"
        if head.startswith(_TIMING_CACHE):
            return "timing_cache"
        is_zip = head.startswith(b"PK")
        binary_kind = (
            _detect_zip(file, path.name) if is_zip else _detect_onnx(file, file.seek(0, os.SEEK_END))
        )
    file_kind = binary_kind or _detect_text(head)
    if file_kind is None:
        content = f"begins with {head[:16]!r}, which identifies no kind" if head else "is empty"
        raise ReadError(
            f'Cannot read "{path.name}": byte 0: it {content}; a file or lines of TensorRT, trex, Polygraphy, ONNX '
            'Runtime or Nsight Systems belong there. Give what rtlab reads: layers="layers.json" (trtexec '
            "--exportLayerInfo), profile, times, output, metadata, log, archive, results, ort_profile or ort_model."
        )
    return file_kind


def holds_arrays(path: Path) -> bool:
    """Whether a file holds NumPy's arrays, as ``numpy.save`` or ``numpy.savez`` writes them."""
    try:
        with open_input(path) as file:
            if file.read(6) == b"\x93NUMPY":
                return True
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (OSError, zipfile.BadZipFile):
        return False
    return bool(names) and all(n.endswith(".npy") for n in names)


def holds_study(path: Path) -> bool:
    """Whether a file is a study that ``Study.save`` wrote."""
    try:
        with open_input(path) as file, zipfile.ZipFile(file) as archive:
            return STUDY_DOCUMENT in archive.namelist()
    except (OSError, ValueError, zipfile.BadZipFile, NotImplementedError, RuntimeError):
        return False


def holds_engine(path: Path) -> bool:
    """Whether a file tells of an engine: it is of one of ``KINDS``, and no ONNX model."""
    try:
        return detect_kind(path) != "model"
    except ReadError:
        return False


def sort_by_kind(paths: Iterable[Path]) -> dict[str, Path]:
    """Files by kind, of trex's metadata the best; ``ReadError`` where one is unknown, or two are of one kind."""
    paths_by_kind: dict[str, Path] = {}
    kinds = [(path, detect_kind(path)) for path in paths]
    has_several_profiles = sum(kind == "profile" for _, kind in kinds) > 1
    for path, detected_kind in kinds:
        # A log of trtexec that ends in a table of what was exported as well.
        is_log = has_several_profiles and detected_kind == "profile" and is_table_in_log(path)
        kind = "log" if is_log else detected_kind
        other = paths_by_kind.get(kind)
        is_better = other is not None and kind == "metadata" and _rank_metadata(other) - _rank_metadata(path)
        if other is not None and not is_better:
            raise ReadError(
                f'Cannot distinguish "{other.name}" from "{path.name}": by their first bytes (byte 0) both are '
                f"{KINDS[kind]}; one of a kind belongs to an engine. Leave one out, or name the right one: "
                f'{kind}="{path.name}".'
            )
        if other is None or is_better < 0:
            paths_by_kind[kind] = path
    return paths_by_kind


def _read_head(path: Path) -> str:
    with open_input(path) as file:
        head = file.read(_HEAD)
    return head.decode(wrapping.detect_encoding(head[:4]), "replace")


def _rank_metadata(path: Path) -> int:
    """How much metadata of trex tell of an engine."""
    keys = _collect_keys(_read_head(path))
    return 2 * ("performance_summary" in keys) + bool(keys & {"device_information", "ComputeCapability"})


def is_table_in_log(path: Path) -> bool:
    """Whether a profile is a table in a log of trtexec, which also tells machine and version."""
    text = wrapping.strip_wrapping(_read_head(path))
    return printed.TABLE.search(text) is not None and _LOG.search(text) is not None


def is_engine(head: bytes) -> bool:
    """Whether these first bytes are those of a serialized engine, or of an Ultralytics file around one."""
    if head.startswith(_PLANS):
        return True
    if len(head) < 8 or head[4:5] != b"{":
        return False
    # The length of a JSON object, that object, and the engine.
    at = 4 + int(struct.unpack("<I", head[:4])[0])
    return head[at : at + 4] in _PLANS


def _detect_zip(file: BinaryIO, name: str) -> str | None:
    try:
        with zipfile.ZipFile(file) as archive:
            names = {Path(n).name for n in archive.namelist()}
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, struct.error) as error:
        raise ReadError(
            f'Cannot read archive file "{name}": byte 0 begins a zip file, but its directory is damaged '
            f"({error}); a whole archive belongs there. {contents.AGAIN['archive']}"
        ) from error
    if STUDY_DOCUMENT in names:
        raise ReadError(
            f'Cannot read "{name}" as files of an engine: it is a saved study. Open it with rtlab.open.'
        )
    has_exports = any(n.endswith((".graph.json", ".profile.json")) for n in names)
    return "archive" if names & _MEMBERS or has_exports else None


def _detect_onnx(file: BinaryIO, size: int) -> str | None:
    """Walk over the fields of a ModelProto without reading its graph."""
    file.seek(0)
    field_numbers: set[int] = set()
    domains: set[bytes] = set()
    try:
        while file.tell() < size:
            tag = _read_varint(file)
            field, wire = tag >> 3, tag & 7
            if _FIELDS.get(field) != wire:
                return None
            field_numbers.add(field)
            value = _read_varint(file)
            if wire == 2:
                if field == 8:
                    domains.add(file.read(min(value, 256)))
                    value = max(0, value - 256)
                file.seek(value, 1)
    except EOFError:
        return None
    if not {7, 8} <= field_numbers and not {1, 7} <= field_numbers:
        return None
    return "ort_model" if any(name in domain for domain in domains for name in _ORT) else "model"


def _read_varint(file: BinaryIO) -> int:
    value = 0
    for shift in range(0, 70, 7):
        byte = file.read(1)
        if not byte:
            raise EOFError
        value |= (byte[0] & 0x7F) << shift
        if byte[0] < 0x80:
            return value
    raise EOFError


def _detect_text(head: bytes) -> str | None:
    if not head:
        return None
    text = head.decode(wrapping.detect_encoding(head[:4]), "replace")
    # The head may end within a character.
    if "\0" in text or text.count("\ufffd") > 1 + len(text) // 20:
        return None
    text = wrapping.strip_wrapping(text)
    if _CACHE.match(text.lstrip()):
        return "cache"
    starts = [*contents.find_json_starts(text)]
    if starts and not text[: starts[0]].strip():
        return _detect_json(text[starts[0] :]) or _detect_fragment(text) or _detect_messages(text)
    if is_verbose(text):
        return "log"
    if printed.TIME.search(text) or printed.TABLE.search(text):
        return "profile"
    if printed.INSPECTOR.search(text) or printed.ROW.match(text):
        return "layers"
    json_kinds = (json_kind for at in starts if (json_kind := _detect_json(text[at:])))
    json_kind = next(json_kinds, None) or _detect_piece(text)
    return json_kind or ("log" if _LOG.search(text) else _detect_fragment(text) or _detect_messages(text))


def is_verbose(text: str) -> bool:
    """Whether lines of a text are those of a verbose log."""
    return _VERBOSE.search(text) is not None or _SENTENCE.search(text) is not None


def holds_listing(text: str) -> bool:
    """Whether a text holds the JSON of an engine's layers, among lines of another kind or cut off."""
    return _detect_piece(text) == "layers" or any(
        _detect_json(text[at:]) == "layers" for at in contents.find_json_starts(text)
    )


def _detect_piece(text: str) -> str | None:
    """The kind of a piece of a JSON file, which has lost its beginning."""
    return next((kind for kind, marks in _PIECES if marks.search(text)), None)


def _detect_fragment(text: str) -> str | None:
    """The kind of a piece of a file, which has lost its beginning."""
    if (json_kind := _detect_piece(text)) is not None:
        return json_kind
    return "layers" if printed.ROW.search(text) else "log" if _RUN.search(text) else None


def _detect_messages(text: str) -> str | None:
    """``log`` for lines of any program of which a message is known."""
    return "log" if reports.find_reports(text) else None


def _detect_json(text: str) -> str | None:
    if text.lstrip()[:1] == "{":
        keys = _collect_keys(text)
        return next((k for k, marks in _OBJECTS.items() if keys & marks), None)
    first = re.match(r'\[\s*(["{])', text.lstrip())
    if first is None:
        return None
    if first[1] == '"':
        return "layers"
    keys = _collect_keys(text)
    return next((k for k, marks in _ROWS.items() if keys & marks), "layers" if "Name" in keys else None)


def _collect_keys(text: str) -> set[str]:
    """Keys of the object at the top, or of the objects in the list at the top, as far as the text goes."""
    keys: set[str] = set()
    stack: list[str] = []
    for match in _TOKEN.finditer(text):
        token = match[0]
        if token in {"[", "{"}:
            stack.append(token)
        elif token in {"]", "}"}:
            if len(stack) <= 1:
                break
            stack.pop()
        elif match[2] is not None and stack in (["{"], ["[", "{"]):
            keys.add(match[1])
    return keys
