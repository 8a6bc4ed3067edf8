"""The engine inspector's JSON, TensorRT 8.2 to 11.x, as ``trtexec --exportLayerInfo`` writes it.

What the releases changed: layers are strings where the engine was built without detailed verbosity; a tensor's type
hides in ``Format/Datatype`` up to 10.x and has a key of its own later; ``Metadata`` with ONNX names came in 8.6;
``I/O Tensors`` took the place of ``Bindings`` in 11.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from rtlab.backends.readers.contents import check_layer_count, fault, format_keys, format_value, parse_integer
from rtlab.backends.readers.log.listing import parse_node_ids
from rtlab.core.engine import DTYPES, Engine, Layer, Tensor
from rtlab.core.options import Shapes
from rtlab.errors import ReadError

#: TensorRT puts it behind a name, and Myelin puts more behind it: ``fc [profile 1]_myl11_2``.
_PROFILE = re.compile(r" \[profile (\d{1,6})\]")
_TAG = " [profile "
_MYELIN = re.compile(r"_(myl\d+)_\d+$")
#: Type names inside the inspector's format sentences, beside those of the build log.
_TYPES = {k.lower(): v for k, v in DTYPES.items()} | {v: v for v in DTYPES.values()}
_TYPE = re.compile(rf"\b({'|'.join(sorted(_TYPES, key=len, reverse=True))})\b", re.IGNORECASE)
#: Keys that have a field of their own in ``Layer``; every other one is an attribute.
_FIELDS = frozenset({
    "Name", "LayerType", "Inputs", "Outputs", "Constants", "TacticName", "TacticValue", "StreamId", "EventId",
    "Metadata",
})  # fmt: skip
#: TensorRT's names of types.
_SPELLED = {ours: theirs for theirs, ours in reversed(DTYPES.items())}
_SIDES = ("Inputs", "Outputs", "Constants")
_BOUNDS = ("MinShape", "OptShape", "MaxShape")

_Entry = Mapping[str, Any]
#: Beyond what 64 bits hold.
_INT64_LIMIT = 1 << 63


@dataclasses.dataclass(frozen=True)
class InspectedEngine:
    """What the file tells.

    ``profile`` is the optimization profile whose layers these are, None where the engine has no others. ``shapes``
    gives the bounds of each dynamic input by profile. ``around`` is the text around the listing.
    """

    layers: tuple[Layer, ...]
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    notes: tuple[str, ...]
    profile: int | None
    shapes: tuple[tuple[tuple[str, Shapes], ...], ...] = ()
    around: str = ""


def split_profile(name: str) -> tuple[str, int | None]:
    """A name without its ``[profile N]``, and that number."""
    match = _PROFILE.search(name) if _TAG in name else None
    return (_PROFILE.sub("", name), int(match[1])) if match else (name, None)


def parse(
    document: object, file: str, *, select: int | None = None, prefer: int | None = None
) -> InspectedEngine:
    """Read the inspector's document, of a file of this name; ``ReadError`` where it is none or has no such profile.

    ``select`` is the optimization profile whose layers are read; without it ``prefer``, if it exists, else the first.
    """
    top: Mapping[str, object] = document if isinstance(document, dict) else {"Layers": document}
    entries = top.get("Layers")
    if not isinstance(entries, list):
        content = f"keys {format_keys(document)}" if isinstance(document, dict) else format_value(document)
        problem = f"line 1: it holds {content}, not a list of layers"
        raise fault("layers", file, problem, 'a list under "Layers"')
    if not entries:
        raise ReadError(
            f'Cannot read layers file "{file}": the list under the key "Layers" is empty; layers belong there. The '
            "engine was built with profiling verbosity NONE. Build it with trtexec --profilingVerbosity=detailed, "
            "then export it again with --exportLayerInfo=layers.json."
        )
    check_layer_count("layers", file, len(entries))
    named_entries = [_read_entry(e, i, file) for i, e in enumerate(entries)]
    owners = _assign_profiles(named_entries)
    profiles = tuple(sorted(set(owners)))
    if select is not None and select not in profiles:
        raise ReadError(
            f'Cannot read optimization profile {select} from "{file}": key "Layers" has profiles '
            f"{', '.join(map(str, profiles))}. Choose one of them with optimization_profile."
        )
    selected_profile = select if select is not None else prefer if prefer in profiles else profiles[0]
    selected_entries = [
        entry for entry, owner in zip(named_entries, owners, strict=True) if owner == selected_profile
    ]
    layers = tuple(make_layer(name, entry, i) for i, (name, entry) in enumerate(selected_entries))
    notes = []
    if len(profiles) > 1:
        others = ", ".join(str(p) for p in profiles if p != selected_profile)
        notes.append(
            f"The engine has {len(profiles)} optimization profiles; the layers of profile {selected_profile} are "
            f"shown. Read another with optimization_profile={others}."
        )
    if not any(entry for _, entry in selected_entries):
        notes.append(
            "The file holds names of layers only: no types, tensors or tactics. For these, build the engine with "
            "trtexec --profilingVerbosity=detailed."
        )
    inputs, outputs, shapes = _read_edges(top, layers)
    return InspectedEngine(
        layers, inputs, outputs, tuple(notes), None if profiles == (0,) else selected_profile, shapes
    )


def _read_entry(entry: object, index: int, file: str) -> tuple[str, _Entry]:
    name, fields = (entry.get("Name"), entry) if isinstance(entry, dict) else (entry, {})
    if not isinstance(name, str):
        raise fault("layers", file, f"layer {index} has no name", 'a text under "Name"')
    for side in _SIDES:
        tensors = fields.get(side)
        if not tensors:
            continue
        names = (
            [t.get("Name") if isinstance(t, dict) else t for t in tensors]
            if isinstance(tensors, list)
            else [0]
        )
        if not all(isinstance(n, str) for n in names):
            problem = f'layer {index} has no names of tensors under the key "{side}"'
            raise fault("layers", file, problem, 'a list of objects with a text under "Name"')
    return name, fields


def _assign_profiles(entries: Sequence[tuple[str, _Entry]]) -> list[int]:
    """The optimization profile of each layer.

    All but the first stand in names; up to 10.0 the first does as well. Where Myelin's own names tell none, their
    tensors do, or another layer of the same Myelin graph, or else the layer before: those of a profile stand together.
    """
    profiles = [_find_profile(name, entry) for name, entry in entries]
    if not any(profiles):
        return [0] * len(profiles)
    graphs = {
        match[1]: profile
        for (name, _), profile in zip(entries, profiles, strict=True)
        if profile is not None and (match := _MYELIN.search(name))
    }
    owners = []
    last = 0 if profiles[0] is None else min(p for p in profiles if p is not None)
    for (name, _), profile in zip(entries, profiles, strict=True):
        if profile is None and (match := _MYELIN.search(name)):
            profile = graphs.get(match[1])  # noqa: PLW2901 - the same question, asked further
        last = last if profile is None else profile
        owners.append(last)
    return owners


def _find_profile(name: str, entry: _Entry) -> int | None:
    tensors = [t["Name"] if isinstance(t, dict) else t for side in _SIDES for t in entry.get(side) or ()]
    for text in (name, *tensors):
        if _TAG in text and (profile := split_profile(text)[1]) is not None:
            return profile
    return None


def make_layer(name: str, entry: Mapping[str, Any], index: int) -> Layer:
    """The layer of an entry of ``Layers``, the one at ``index``."""
    layer_name = split_profile(name)[0]
    return Layer(
        id=f"{index}:{layer_name}",
        name=layer_name,
        kind=_as_text(entry.get("LayerType")),
        index=index,
        inputs=_make_tensors(entry.get("Inputs")),
        outputs=_make_tensors(entry.get("Outputs")),
        constants=_make_tensors(entry.get("Constants")),
        tactic=_as_text(entry.get("TacticName")) or _as_text(entry.get("TacticValue")),
        stream=parse_integer(entry.get("StreamId")) or 0,
        event=parse_integer(entry.get("EventId")),
        origins=parse_node_ids(_as_text(entry.get("Metadata"))),
        attributes={key: value for key, value in entry.items() if key not in _FIELDS},
    )


def _read_edges(
    top: Mapping[str, object], layers: tuple[Layer, ...]
) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...], tuple[tuple[tuple[str, Shapes], ...], ...]]:
    """Inputs and outputs of the engine, and bounds of its inputs; before 11.x the layers tell which is which."""
    if entries := [e for e in _as_list(top.get("I/O Tensors")) if isinstance(e, dict)]:
        # They repeat for each profile.
        inputs, outputs = (
            {
                t.name: t
                for t in _make_tensors([e for e in entries if str(e.get("IOMode")).lower().endswith(mode)])
            }
            for mode in ("input", "output")
        )
        return tuple(inputs.values()), tuple(outputs.values()), _read_profile_shapes(entries)
    read_tensors = {t.name: t for layer in layers for t in layer.inputs}
    written_tensors = {t.name: t for layer in layers for t in layer.outputs}
    bindings = [b for b in _as_list(top.get("Bindings")) if isinstance(b, str)]
    names = dict.fromkeys(split_profile(b)[0] for b in bindings)
    return (
        tuple(read_tensors[n] for n in names if n in read_tensors and n not in written_tensors),
        tuple(written_tensors[n] for n in names if n in written_tensors),
        (),
    )


def _read_profile_shapes(entries: Sequence[_Entry]) -> tuple[tuple[tuple[str, Shapes], ...], ...]:
    """Least, usual and greatest shape of each input that has them, by profile."""
    profiles: defaultdict[int, dict[str, Shapes]] = defaultdict(dict)
    for entry in entries:
        for k, bounds in enumerate(_as_list(entry.get("ProfileInfo"))):
            shapes = [_parse_ints(bounds.get(b)) for b in _BOUNDS] if isinstance(bounds, dict) else [None]
            if None not in shapes:
                profiles[k][split_profile(_as_text(entry.get("Name")))[0]] = tuple(shapes)  # type: ignore[assignment]
    return tuple(tuple(profiles[k].items()) for k in range(max(profiles, default=-1) + 1))


def _make_tensors(entries: object) -> tuple[Tensor, ...]:
    if not entries:
        return ()
    tensor_entries = [{"Name": e} if isinstance(e, str) else e for e in _as_list(entries)]
    return tuple(
        [_make_tensor(e) for e in tensor_entries if isinstance(e, dict) and isinstance(e.get("Name"), str)]
    )


def _make_tensor(entry: _Entry) -> Tensor:
    format_text = _as_text(entry.get("Format/Datatype")) or _as_text(entry.get("Format"))
    type_ = _as_text(entry.get("Datatype")) or _as_text(entry.get("DataType")) or format_text
    dtype, format_ = _parse_format(type_, format_text)
    name = split_profile(entry["Name"])[0]
    return Tensor(
        name, dtype, _parse_ints(entry.get("Dimensions")), format_, _parse_ints(entry.get("Strides"))
    )


@functools.lru_cache(maxsize=256)
def _parse_format(type_: str, format_text: str) -> tuple[str, str]:
    """Data type and format. A bare type such as "Half" is no format; one that is new stands in small letters."""
    match = _TYPE.search(type_)
    new = type_.lower() if type_.isidentifier() and type_ != format_text else ""
    if match is None:
        return new, format_text
    return _TYPES[match[1].lower()], "" if match[0] == format_text else format_text


def _parse_ints(value: object) -> tuple[int, ...] | None:
    if not isinstance(value, list):
        return None
    if set(map(type, value)) == {int} and min(value) > -_INT64_LIMIT and max(value) < _INT64_LIMIT:
        return tuple(value)
    integers = tuple(n for v in value if (n := parse_integer(v)) is not None)
    return integers if len(integers) == len(value) else None


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _as_list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def layers_json(engine: Engine) -> dict[str, Any]:
    """The layers of an engine in the schema that TensorRT 11's inspector writes; ``study.read`` reads it."""
    sides = (("kINPUT", engine.inputs), ("kOUTPUT", engine.outputs))
    return {
        "Layers": [
            {
                "Name": layer.name,
                "LayerType": layer.kind,
                "Inputs": [_describe_tensor(t) for t in layer.inputs],
                "Outputs": [_describe_tensor(t) for t in layer.outputs],
                **({"Constants": [_describe_tensor(t) for t in layer.constants]} if layer.constants else {}),
                **layer.attributes,
                "TacticName": layer.tactic,
                "StreamId": layer.stream,
                # The inspector separates labels by the ASCII record separator.
                "Metadata": "\x1e".join(f"[ONNX Layer: {id_}]" for id_ in layer.origins),
            }
            for layer in engine.layers
        ],
        "I/O Tensors": [
            {"Name": t.name, "IOMode": mode, "DataType": _SPELLED.get(t.dtype, t.dtype), **_dimensions(t)}
            for mode, tensors in sides
            for t in tensors
        ],
    }


def _describe_tensor(tensor: Tensor) -> dict[str, Any]:
    fields: dict[str, Any] = {"Name": tensor.name, **_dimensions(tensor)}
    if tensor.strides is not None:
        fields["Strides"] = list(tensor.strides)
    if tensor.dtype:
        fields["Datatype"] = _SPELLED.get(tensor.dtype, tensor.dtype)
    if tensor.format:
        fields["Format"] = tensor.format
    return fields


def _dimensions(tensor: Tensor) -> dict[str, Any]:
    return {} if tensor.shape is None else {"Dimensions": list(tensor.shape)}
