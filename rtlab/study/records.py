"""Values of a study as a JSON document with arrays apart, and back: what one rtlab writes and a later one reads.

A dataclass is an object with its class under ``$``, whose name is looked up in a table: reading runs nothing that is in
a document. A field that it lacks takes its default, and one that is no more is passed over. Of an object that stands in
several places the first has a number under ``#``, and the others refer to it. Arrays are slices of one long array for
each type of number.
"""

from __future__ import annotations

import dataclasses
import datetime
import enum
import io
import math
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rtlab import errors
from rtlab.analyses.batches import BatchTime, Sweep
from rtlab.analyses.bisection import Bisection, ChangedGroup
from rtlab.analyses.build.tactics import LayerTactics
from rtlab.analyses.calibration.observed_ranges import Calibration
from rtlab.analyses.channels import ChannelDelta, ChannelErrors
from rtlab.analyses.diagnosis import AccuracyDiagnosis
from rtlab.analyses.repair import AccuracyRepair, RepairChange, RepairPoint
from rtlab.analyses.samples.spread import Outlier, Spread
from rtlab.analyses.sensitivity import Sensitivity, SensitivityRow
from rtlab.analyses.why import FusedLayer, FusionTrial, SplitTrial, Verdict
from rtlab.analyses.why.advice import Advice, Cause, Remedy
from rtlab.core.buildlog import (
    Attempt,
    BuildLog,
    Decision,
    LayerMemory,
    NetworkPass,
    Sparsity,
    TacticTime,
    Tuning,
)
from rtlab.core.compiler_info import AttentionKernel, Maker
from rtlab.core.engine import Allocation, Engine, Layer, Tensor
from rtlab.core.facts import Errors, Ranked, Score, VariantResult
from rtlab.core.finding import Finding
from rtlab.core.memo import Memoizable
from rtlab.core.message import MessageMatch
from rtlab.core.metrics import Tally
from rtlab.core.model import Model
from rtlab.core.options import BuildOptions
from rtlab.core.peaks import Peaks
from rtlab.core.precision import Precision
from rtlab.core.prepared import Emulation, Prepared
from rtlab.core.protocols import Limits
from rtlab.core.ptq_transform import PtqTransform
from rtlab.core.quantizer import Quantizer
from rtlab.core.ranges import Range, Ranges
from rtlab.core.scale import CalibratorChoice, Scale
from rtlab.core.slices import SliceSums
from rtlab.core.stage import Stage, StageStatus
from rtlab.core.task import Predictions
from rtlab.core.trace import Profile
from rtlab.core.variant import Calibrator, Rewrite, Target, Variant
from rtlab.errors import RtlabError
from rtlab.formulations.trial import ModelTrial, Trial, TunedLayer, TunedModel

#: Classes by the names that documents have for them.
_CLASSES: Mapping[str, Any] = {
    c.__name__: c
    for c in (
        AccuracyDiagnosis, AccuracyRepair, Advice, Allocation, Attempt, AttentionKernel, BatchTime, Bisection, BuildLog,
        BuildOptions, Calibration, Calibrator, CalibratorChoice, Cause, ChangedGroup, ChannelDelta, ChannelErrors,
        Decision, Engine, Errors, Finding, FusedLayer, FusionTrial, Layer, LayerMemory, LayerTactics, Limits,
        Maker, MessageMatch, ModelTrial, NetworkPass, Outlier, Peaks, Precision, Predictions, Prepared, Profile,
        PtqTransform, Quantizer, Range, Ranges, Ranked, Remedy, RepairChange, RepairPoint, Rewrite, Scale, Score,
        Sensitivity, SensitivityRow, SliceSums, Sparsity, SplitTrial, Spread, Stage, StageStatus, Sweep, TacticTime,
        Tally, Target, Tensor, Trial, TunedLayer, TunedModel, Tuning, Variant, VariantResult, Verdict,
    )
}  # fmt: skip
#: Fields that take their default: what a ranking goes on from has the samples and the task.
_OMITTED = {("Sensitivity", "effects")}
_ERRORS: Mapping[str, Any] = {
    n: c for n, c in vars(errors).items() if isinstance(c, type) and issubclass(c, RtlabError)
}
#: Key of the class of an object, and of the number of one that others refer to.
_CLASS, _NUMBER = "$", "#"
_BITS, _LONE = 64, "surrogatepass"
#: How hard arrays are compressed: NumPy's own level makes histograms 4 to 13 % smaller, in twice the time.
_LEVEL = 4


class RecordWriter:
    """Turns values into documents, and collects their arrays.

    Args:
        pack_model: Returns the document of a model.
    """

    def __init__(self, pack_model: Callable[[Model | Emulation], dict[str, Any]] | None = None) -> None:
        self._pack_model = pack_model
        self._parts: dict[str, list[Any]] = {}
        self._sizes: dict[str, int] = {}
        #: Objects with their numbers, by identity: a reference to each keeps its identity from being used twice.
        self._objects: dict[int, tuple[int, object]] = {}

    def pack(self, value: Any) -> Any:  # noqa: C901, PLR0912 - a case for each kind of value
        """The document of a value; raises ``TypeError`` for one that no document can hold."""
        kind = type(value)
        if isinstance(value, enum.Enum):
            return {_CLASS: kind.__name__, "value": value.value}
        if isinstance(value, float):
            return float(value) if math.isfinite(value) else {_CLASS: "float", "value": str(float(value))}
        if isinstance(value, str):
            return (
                value if _is_unicode(value) else {_CLASS: "text", "value": value.encode("utf-8", _LONE).hex()}
            )
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, int):
            return value if value.bit_length() < _BITS else {_CLASS: "int", "value": str(value)}
        if isinstance(value, Mapping):
            if (
                all(isinstance(k, str) and _is_unicode(k) for k in value)
                and not {_CLASS, _NUMBER} & value.keys()
            ):
                return {k: self.pack(v) for k, v in value.items()}
            return {_CLASS: "map", "items": [[self.pack(k), self.pack(v)] for k, v in value.items()]}
        if isinstance(value, tuple) and not hasattr(value, "_fields"):
            return [self.pack(v) for v in value]
        if isinstance(value, (list, set, frozenset)):
            items = value if isinstance(value, list) else sorted(value, key=repr)
            return {_CLASS: kind.__name__, "items": [self.pack(v) for v in items]}
        if isinstance(value, (np.ndarray, np.generic)):
            return self._pack_array(np.asarray(value), scalar=isinstance(value, np.generic))
        if isinstance(value, bytes):
            return {_CLASS: "bytes", "array": self._pack_array(np.frombuffer(value, np.uint8))}
        if isinstance(value, datetime.datetime):
            return {_CLASS: "datetime", "value": value.isoformat()}
        if isinstance(value, Path):
            return {_CLASS: "path", "value": str(value)}
        if isinstance(value, RtlabError):
            return {
                _CLASS: "error",
                "kind": kind.__name__,
                "text": str(value),
                **self._pack_fields(vars(value)),
            }
        if isinstance(value, (Model, Emulation)) and self._pack_model is not None:
            return {_CLASS: "Model", **self._pack_model(value)}
        return self._pack_object(value)

    def _pack_object(self, value: Any) -> dict[str, Any]:
        name = type(value).__name__
        if _CLASSES.get(name) is not type(value):
            raise TypeError(f'no document holds an object of type "{type(value).__name__}"')
        if not isinstance(value, Memoizable) and "__eq__" in vars(type(value)):
            return {_CLASS: name, **self._pack_fields(_get_fields(value))}
        if id(value) in self._objects:
            return {_CLASS: "ref", "to": self._objects[id(value)][0]}
        number = len(self._objects)
        self._objects[id(value)] = number, value
        return {_CLASS: name, _NUMBER: number, **self._pack_fields(_get_fields(value))}

    def _pack_fields(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        return {k: self.pack(v) for k, v in fields.items()}

    def _pack_array(self, array: Any, *, scalar: bool = False) -> dict[str, Any]:
        document: dict[str, Any] = {_CLASS: "number" if scalar else "array", "type": array.dtype.name}
        document["shape"] = list(array.shape)
        if array.dtype.kind in "OUS":
            # Text; NumPy would pickle it.
            return document | {
                "type": array.dtype.str,
                "items": [self.pack(v) for v in array.ravel().tolist()],
            }
        array = array.astype(array.dtype.newbyteorder("="), copy=False)
        # Of types that are none of NumPy's own, the bits.
        plain = array if array.dtype.isbuiltin == 1 else array.view(f"u{array.dtype.itemsize}")
        key = plain.dtype.str[1:]
        flat = np.ascontiguousarray(plain).reshape(-1)
        document |= {"in": key, "at": self._sizes.get(key, 0)}
        self._parts.setdefault(key, []).append(flat)
        self._sizes[key] = document["at"] + flat.size
        return document

    def encode_arrays(self) -> bytes:
        """The arrays as a compressed ``.npz``."""
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=_LEVEL) as archive:
            for name, parts in self._parts.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, np.concatenate(parts), allow_pickle=False)
        return file.getvalue()


def _is_unicode(text: str) -> bool:
    """Whether JSON can hold a text: no half of a pair stands in it alone."""
    return text.isascii() or not any("\ud800" <= c <= "\udfff" for c in text)


def _get_fields(value: Any) -> dict[str, Any]:
    """The fields of a dataclass, or all that another object has; what is memoized is left out."""
    if dataclasses.is_dataclass(value):
        names = [f.name for f in dataclasses.fields(value)]
        return {n: getattr(value, n) for n in names if (type(value).__name__, n) not in _OMITTED}
    return dict(vars(value))


class RecordReader:
    """Turns documents into values.

    Args:
        arrays: The content of the ``.npz`` beside the document; empty where it refers to none.
        unpack_model: Returns the model of a document.

    Raises:
        ReadError: the arrays are damaged.
    """

    def __init__(
        self, arrays: bytes = b"", unpack_model: Callable[[Mapping[str, Any]], Any] | None = None
    ) -> None:
        self._unpack_model = unpack_model
        self._objects: dict[int, Any] = {}
        self._arrays: dict[str, Any] = {}
        if not arrays:
            return
        with np.load(io.BytesIO(arrays), allow_pickle=False) as file:
            self._arrays = {name: file[name] for name in file.files}

    def unpack(self, document: Any) -> Any:
        """The value of a document.

        Raises:
            KeyError, ValueError, TypeError, LookupError: it is damaged.
        """
        if isinstance(document, list):
            return tuple(self.unpack(v) for v in document)
        if not isinstance(document, dict):
            return document
        if _CLASS not in document:
            return {k: self.unpack(v) for k, v in document.items()}
        return self._unpack_tagged(document[_CLASS], document)

    def _unpack_tagged(self, name: str, document: Mapping[str, Any]) -> Any:
        match name:
            case "map":
                return {self.unpack(k): self.unpack(v) for k, v in document["items"]}
            case "list" | "set" | "frozenset":
                return _GROUPS[name](self.unpack(v) for v in document["items"])
            case "array":
                return self._unpack_array(document)
            case "number":
                return self._unpack_array(document)[()]
            case "bytes":
                return self.unpack(document["array"]).tobytes()
            case "error":
                return self._unpack_error(document)
            case "Model" if self._unpack_model is not None:
                return self._unpack_model(document)
            case "ref":
                return self._objects[document["to"]]
        if name in _TEXTS:
            return _TEXTS[name](document["value"])
        return self._unpack_object(_CLASSES[name], document)

    def _unpack_object(self, kind: Any, document: Mapping[str, Any]) -> Any:
        if issubclass(kind, enum.Enum):
            return kind(document["value"])
        value = kind.__new__(kind)
        if _NUMBER in document:
            self._objects[document[_NUMBER]] = value
        if not dataclasses.is_dataclass(kind):
            vars(value).update({k: self.unpack(v) for k, v in document.items() if k not in {_CLASS, _NUMBER}})
            return value
        for field in dataclasses.fields(kind):
            if field.name in document:
                content = self.unpack(document[field.name])
            elif field.default is not dataclasses.MISSING:
                content = field.default
            elif field.default_factory is not dataclasses.MISSING:
                content = field.default_factory()
            else:
                raise KeyError(f'"{document[_CLASS]}" has no "{field.name}"')
            # What was checked when it was made is not changed by checking it again.
            object.__setattr__(value, field.name, content)
        return value

    def _unpack_array(self, document: Mapping[str, Any]) -> Any:
        shape = tuple(document["shape"])
        dtype = np.dtype(document["type"])
        if "items" in document:
            return np.array([self.unpack(v) for v in document["items"]], dtype).reshape(shape)
        first, size = document["at"], math.prod(shape)
        part = self._arrays[document["in"]][first : first + size]
        return (part if part.dtype == dtype else part.view(dtype)).reshape(shape)

    def _unpack_error(self, document: Mapping[str, Any]) -> RtlabError:
        error: RtlabError = _ERRORS[document["kind"]](document["text"])
        rest = {k: self.unpack(v) for k, v in document.items() if k not in {_CLASS, "kind", "text"}}
        vars(error).update(rest)
        return error


_GROUPS: Mapping[str, Any] = {"list": list, "set": set, "frozenset": frozenset}
#: Values that are one text.
_TEXTS: Mapping[str, Callable[[str], Any]] = {
    "float": float,
    "int": int,
    "text": lambda text: bytes.fromhex(text).decode("utf-8", _LONE),
    "datetime": datetime.datetime.fromisoformat,
    "path": Path,
}
