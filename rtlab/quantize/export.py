"""Taking a variant to another machine: the prepared model, its scales, and the commands that build it there."""

from __future__ import annotations

import dataclasses
import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx
from onnx_ir import TensorProtocol

from rtlab.core import onnx_file
from rtlab.core.calibrators import METHODS, TENSORRT_CALIBRATORS
from rtlab.core.files import check_path, is_stream, write
from rtlab.core.node import ONNX_DOMAINS
from rtlab.core.trtexec import format_command, format_flag
from rtlab.core.variant import Precision, Variant
from rtlab.errors import RtlabError, VariantError
from rtlab.quantize.cache import CalibrationCache
from rtlab.quantize.compose import find_fp8_relus

if TYPE_CHECKING:
    from rtlab.core.model import Model
    from rtlab.core.prepared import Prepared

#: What TensorRT 10.16.1 writes at the head of its caches; it ignores one of another version.
VERSION = "101601"


@dataclasses.dataclass(frozen=True)
class Exported:
    """Files that were written, and the commands that build an engine of them elsewhere.

    ``weights`` is where those of a model are that does not fit into one file.
    """

    model: Path
    scales: Path | None
    cache: Path | None
    commands: tuple[str, ...]
    weights: Path | None = None

    @property
    def files(self) -> tuple[Path, ...]:
        """All files that were written."""
        return tuple(p for p in (self.model, self.weights, self.scales, self.cache) if p)

    def __repr__(self) -> str:
        return f"<Exported {', '.join(map(str, self.files))}>\n" + "\n".join(self.commands)


def make_file_stem(model: Model, variant: Variant) -> str:
    """What to call the files of a variant, without an ending."""
    plain = dataclasses.replace(variant, backend=None)
    # Many patterns make no name.
    text = plain.id if len(plain.pins) + len(plain.sparsity) <= 1 else f"{plain.name}-{plain.target}"
    return re.sub(r"[^\w.+-]+", "-", f"{model.name}-{text}").strip("-")


#: Types of what a Relu gives in a prepared model.
_TYPES = {"fp32": onnx.TensorProto.FLOAT, "fp16": onnx.TensorProto.FLOAT16, "bf16": onnx.TensorProto.BFLOAT16}


def format_scales(model: Model, variant: Variant, prepared: Prepared) -> str:
    """The scales of the activations as JSON: by value, its ``amax`` and its ``scale``."""
    content: dict[str, Any] = {
        "model": model.name,
        "digest": model.digest,
        "variant": variant.id,
        "scales": {v: {"amax": s.amax, "scale": s.scale} for v, s in prepared.scales.items()},
    }
    for value, scale in prepared.scales.items():
        if scale.note:
            content["scales"][value]["note"] = scale.note
        if scale.choice:
            choice = {"calibrator": str(scale.choice.calibrator), "why": scale.choice.why}
            content["scales"][value].update(choice)
    return json.dumps(content, indent=1, ensure_ascii=False)


def build_calibration_cache(variant: Variant, prepared: Prepared, version: str = VERSION) -> CalibrationCache:
    """The scales as a calibration cache of TensorRT 10, for its implicit INT8.

    Raises:
        VariantError: the variant has no scales of INT8 activations.
    """
    if Precision.INT8 not in variant.precisions or not prepared.scales:
        raise VariantError(
            f'Cannot write a calibration cache of variant "{variant.name}": it has no INT8 activations. '
            'Choose precision="int8" with a calibrator.'
        )
    tensorrt = METHODS[variant.calibrator.method].tensorrt if variant.calibrator else ""
    algorithm = tensorrt or TENSORRT_CALIBRATORS[0]
    int8_scales = {v: s for v, s in prepared.scales.items() if s.largest == 127}
    return CalibrationCache.of(int8_scales, algorithm=algorithm, version=version)


def build_commands(model: Model, variant: Variant, onnx: str, cache: str | None = None) -> tuple[str, ...]:
    """Command lines that build the prepared model on another machine, from a file of the name ``onnx``.

    ``cache`` adds the line with which TensorRT 10 quantizes the *original* model implicitly.
    """
    name, stem = shlex.quote(onnx), onnx.removesuffix(".onnx")
    plan = shlex.quote(f"{stem}.engine")
    shapes = list(_iter_dynamic_shapes(model))
    engine_flag = format_flag("saveEngine", f"{stem}.engine")
    trtexec = [format_flag("onnx", onnx), engine_flag, format_flag("stronglyTyped")]
    polygraphy = [f"polygraphy convert {name} -o {plan} --strongly-typed"]
    if Precision.TF32 in variant.precisions:
        polygraphy.append("--tf32")
    else:
        trtexec.append(format_flag("noTF32"))
    if variant.sparsity:
        trtexec.append(format_flag("sparsity", "enable"))
        polygraphy.append("--sparse-weights")
    for part in ("min", "opt", "max") if shapes else ():
        listed = ",".join(f"{n}:{'x'.join(map(str, s))}" for n, s in shapes)
        trtexec.append(format_flag(f"{part}Shapes", listed))
        listed = " ".join(shlex.quote(f"{n}:[{','.join(map(str, s))}]") for n, s in shapes)
        polygraphy.append(f"--trt-{part}-shapes {listed}")
    trtexec += [
        format_flag("profilingVerbosity", "detailed"),
        format_flag("exportLayerInfo", f"{stem}.layers.json"),
    ]
    polygraphy.append("--profiling-verbosity detailed")
    lines = [format_command(*trtexec), " ".join(polygraphy)]
    if cache is not None:
        original = format_flag("onnx", model.path.name if model.path else f"{model.name}.onnx")
        flags = (format_flag("int8"), format_flag("fp16"), format_flag("calib", cache), engine_flag)
        lines.append(format_command(original, *flags))
    return tuple(lines)


def export(
    model: Model,
    variant: Variant,
    prepared: Prepared,
    path: str | Path,
    *,
    cache: str | Path | None = None,
    version: str = VERSION,
) -> Exported:
    """Write the prepared model, its scales beside it, and on demand a calibration cache.

    Weights are read as they are written. Where they do not fit into one file, they are in another one beside the model.
    A file that the model was read from is never written to. ``version`` is that of the cache's header.

    Raises:
        RtlabError: a file cannot be written there, or is one that the model was read from.
        VariantError: a cache is requested and the variant has no INT8 activations.
    """
    path = check_path(path, "the prepared model")
    table = check_path(cache, "the calibration cache") if cache is not None else None
    light, weights = _outline_model(prepared.model)
    files: list[tuple[Path, bytes | Iterable[bytes], str]] = []
    beside = None
    if onnx_file.count_bytes(light, weights) <= onnx_file.MOST_BYTES:
        files.append((path, onnx_file.iter_chunks(light, weights), "the prepared model"))
    elif is_stream(path):
        raise RtlabError(
            f'Cannot write the prepared model to "{path}": it is larger than the 2 GiB that one ONNX file holds, and '
            "beside a device or a pipe there is no place for its weights. Name a file."
        )
    else:
        beside = path.with_name(f"{path.name}.data")
        chunks = onnx_file.iter_weight_chunks(light, weights, beside.name)
        files.append((beside, chunks, "the weights of the prepared model"))
        # Only then it says where they are.
        files.append((path, onnx_file.iter_chunks(light, {}), "the prepared model"))
    # Beside a device or a pipe nothing is written.
    has_table = prepared.scales and not is_stream(path)
    scales = path.with_name(f"{path.stem}.scales.json") if has_table else None
    if scales is not None:
        files.append((scales, format_scales(model, variant, prepared).encode("utf-8"), "the scales"))
    if table is not None:
        calibration_cache = build_calibration_cache(variant, prepared, version)
        files.append((table, calibration_cache.encode(), "the calibration cache"))
    if len({p.resolve() for p, *_ in files}) < len(files):
        raise RtlabError(
            f'Cannot write two files to "{path}". Give the model and the cache names of their own.'
        )
    for target, content, what in files:
        write(target, content, what=what, model=model)
    lines = build_commands(model, variant, path.name, table.name if table else None)
    return Exported(path, scales, table, lines, beside)


def _outline_model(model: Model) -> tuple[onnx.ModelProto, Mapping[str, TensorProtocol]]:
    """The outline of a prepared model, in a form that ONNX Runtime computes as it is written, at every level.

    From level EXTENDED on it drops a Relu whose result becomes FP8, behind a pool too (seen in 1.32). It leaves a Max
    with 0 as it is, of which TensorRT-RTX 1.7.1 made the same layers in both samples that were tried.
    """
    proto, weights = model.outline()
    if not find_fp8_relus(model):
        return proto, weights
    zeros: dict[int, str] = {}
    for node in proto.graph.node:
        if node.op_type == "Relu" and node.domain in ONNX_DOMAINS:
            kind = _TYPES.get(model.values[node.output[0]].dtype or "")
            if kind is None:
                continue
            if kind not in zeros:
                zeros[kind] = f"rtlab.zero/{kind}"
                proto.graph.initializer.append(onnx.helper.make_tensor(zeros[kind], kind, [], [0.0]))
            node.op_type = "Max"
            node.input.append(zeros[kind])
    return proto, weights


def _iter_dynamic_shapes(model: Model) -> Iterator[tuple[str, Sequence[int]]]:
    """Concrete shapes of the inputs that have dynamic dimensions."""
    for name in model.inputs:
        if not all(isinstance(d, int) for d in model.values[name].shape or ()):
            yield name, model.input_shape(name)
