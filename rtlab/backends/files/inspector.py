"""The engine inspector's JSON, TensorRT 8.2 to 11.x, as ``trtexec --exportLayerInfo`` writes it.

What the releases changed: layers are strings where the engine was built without detailed verbosity; a tensor's type
hides in ``Format/Datatype`` up to 10.x and has a key of its own later; ``Metadata`` with ONNX names came in 8.6;
``I/O Tensors`` took the place of ``Bindings`` in 11.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from rtlab.backends.files.contents import fault, keys, see_few, shown, whole_number
from rtlab.backends.log.listing import origins
from rtlab.core.engine import DTYPES, Layer, Tensor
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
_SIDES = ("Inputs", "Outputs", "Constants")
_BOUNDS = ("MinShape", "OptShape", "MaxShape")

_Entry = Mapping[str, Any]
#: Beyond what 64 bits hold.
_BEYOND = 1 << 63


@dataclasses.dataclass(frozen=True)
class Inspected:
    """What the file tells.

    ``profile`` is the optimization profile whose layers these are, None where untold; ``profiles`` are all that the
    engine has. ``shapes`` gives the bounds of each dynamic input by profile.
    """

    layers: tuple[Layer, ...]
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    notes: tuple[str, ...]
    profile: int | None
    profiles: tuple[int, ...] = ()
    shapes: tuple[tuple[tuple[str, Shapes], ...], ...] = ()


def bare(name: str) -> tuple[str, int | None]:
    """A name without its ``[profile N]``, and that number."""
    found = _PROFILE.search(name) if _TAG in name else None
    return (_PROFILE.sub("", name), int(found[1])) if found else (name, None)


def parse(
    document: object,
    file: str,
    *,
    select: int | None = None,
    prefer: int | None = None,
    twice: Collection[str] = (),
) -> Inspected:
    """Read the inspector's document.

    Args:
        document: What the JSON held.
        file: Its name, for messages.
        twice: Keys that stand twice in one of its objects.
        select: The optimization profile whose layers are wanted.
        prefer: The one to take where none is selected, if it exists; else it is the first.

    Raises:
        ReadError: it is not what an inspector writes, or has no such profile.
    """
    top: Mapping[str, object] = document if isinstance(document, dict) else {"Layers": document}
    entries = top.get("Layers")
    if not isinstance(entries, list):
        held = f"keys {keys(top)}" if isinstance(document, dict) else f"a JSON {type(document).__name__}"
        if "Layers" in top and isinstance(document, dict):
            held = f'{shown(entries)} under the key "Layers"'
        raise fault("layers", file, f"line 1: it holds {held}, not a list of layers", 'a list under "Layers"')
    if not entries:
        raise ReadError(
            f'Cannot read layers file "{file}": the list under the key "Layers" is empty; layers belong there. The '
            "engine was built with profiling verbosity NONE. Build it with trtexec --profilingVerbosity=detailed, "
            "then export it again with --exportLayerInfo=layers.json."
        )
    see_few("layers", file, len(entries))
    if "Layers" in twice:
        raise fault("layers", file, 'the key "Layers" stands twice', "the layers of one engine")
    found = [_entry(e, i, file) for i, e in enumerate(entries)]
    owners = _owners(found)
    profiles = tuple(sorted(set(owners)))
    if select is not None and select not in profiles:
        raise ReadError(
            f'Cannot read optimization profile {select} from "{file}": key "Layers" has profiles '
            f"{', '.join(map(str, profiles))}. Choose one of them with optimization_profile."
        )
    shown_ = select if select is not None else prefer if prefer in profiles else profiles[0]
    open_: list[str] = []
    kept = [entry for entry, owner in zip(found, owners, strict=True) if owner == shown_]
    layers = tuple(layer(name, entry, i, open_) for i, (name, entry) in enumerate(kept))
    named = profiles != (0,)
    notes = []
    if len(profiles) > 1:
        others = ", ".join(str(p) for p in profiles if p != shown_)
        notes.append(
            f"The engine has {len(profiles)} optimization profiles; the layers of profile {shown_} are shown. "
            f"Read another with optimization_profile={others.split(',')[0]}"
            + (f" (there are {others})." if "," in others else ".")
        )
    if not any(entry for _, entry in kept):
        notes.append(
            "The file holds names of layers only: no types, tensors or tactics. For these, build the engine with "
            "trtexec --profilingVerbosity=detailed."
        )
    inputs, outputs, shapes = _edges(top, layers, open_)
    if open_:
        notes.append(
            f"{len(open_)} tensor{'s tell' if len(open_) > 1 else ' tells'} no usable dimensions, so "
            f"{'their shapes are' if len(open_) > 1 else 'its shape is'} left open: {', '.join(open_[:3])}"
            + (" ..." if len(open_) > 3 else ".")
        )
    return Inspected(
        layers,
        inputs,
        outputs,
        tuple(notes),
        shown_ if named else None,
        profiles if named else (),
        shapes,
    )


def _entry(entry: object, index: int, file: str) -> tuple[str, _Entry]:
    if isinstance(entry, dict):
        name = entry.get("Name")
        for side in _SIDES:
            tensors = entry.get(side)
            if tensors is None:
                continue
            if not isinstance(tensors, list):
                found = f'layer {index} has {shown(tensors)} under the key "{side}"'
                raise fault("layers", file, found, "a list of tensors")
            for k, tensor in enumerate(tensors):
                if not isinstance(tensor.get("Name") if isinstance(tensor, dict) else tensor, str):
                    found = f'tensor {k} under the key "{side}" of layer {index} has no name'
                    raise fault("layers", file, found, 'an object with a text under "Name"')
        found_ = entry
    else:
        name, found_ = entry, {}
    if not isinstance(name, str):
        raise fault("layers", file, f"layer {index} has no name", 'a text under "Name"')
    return name, found_


def _owners(entries: Sequence[tuple[str, _Entry]]) -> list[int]:
    """The optimization profile of each layer.

    All but the first profile stand in names; up to 10.0 the first does as well. Myelin's own names tell none: then
    their tensors do, or another layer of the same Myelin graph, or else the layer before, because the layers of a
    profile stand together.
    """
    told = [_told(name, entry) for name, entry in entries]
    if not any(told):
        return [0] * len(told)
    graphs = {
        found[1]: profile
        for (name, _), profile in zip(entries, told, strict=True)
        if profile is not None and (found := _MYELIN.search(name))
    }
    owners = []
    last = 0 if any(p is None for p in told[:1]) else min((p for p in told if p is not None), default=0)
    for (name, _), profile in zip(entries, told, strict=True):
        if profile is None and (found := _MYELIN.search(name)):
            profile = graphs.get(found[1])  # noqa: PLW2901 - the same question, asked further
        last = last if profile is None else profile
        owners.append(last)
    return owners


def _told(name: str, entry: _Entry) -> int | None:
    tensors = [t["Name"] if isinstance(t, dict) else t for side in _SIDES for t in entry.get(side) or ()]
    for text in (name, *tensors):
        if _TAG in text and (profile := bare(text)[1]) is not None:
            return profile
    return None


def layer(
    name: str, entry: Mapping[str, Any], index: int, open_: list[str], *, tagged: bool = False
) -> Layer:
    """The layer of an entry of ``Layers``, the one at ``index``; ``open_`` gets the tensors without usable shapes.

    ``tagged`` leaves the number of an optimization profile in its names.
    """
    plain = name if tagged else bare(name)[0]
    attributes = dict(entry)
    for key in _FIELDS:
        attributes.pop(key, None)
    return Layer(
        id=f"{index}:{plain}",
        name=plain,
        kind=_text(entry.get("LayerType")),
        index=index,
        inputs=_tensors(entry.get("Inputs"), open_, tagged=tagged),
        outputs=_tensors(entry.get("Outputs"), open_, tagged=tagged),
        constants=_tensors(entry.get("Constants"), open_, tagged=tagged),
        tactic=_text(entry.get("TacticName")) or _text(entry.get("TacticValue")),
        stream=whole_number(entry.get("StreamId")) or 0,
        event=whole_number(entry.get("EventId")),
        origins=origins(_text(entry.get("Metadata"))),
        attributes=attributes,
    )


def _edges(
    top: Mapping[str, object], layers: tuple[Layer, ...], open_: list[str]
) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...], tuple[tuple[tuple[str, Shapes], ...], ...]]:
    """Inputs and outputs of the engine, and the bounds of its inputs.

    11.x tells inputs from outputs; before that the layers do.
    """
    listed = top.get("I/O Tensors")
    entries = [e for e in listed if isinstance(e, dict)] if isinstance(listed, list) else []
    if entries:
        sides = {
            mode: _tensors([e for e in entries if str(e.get("IOMode")).lower().endswith(mode)], open_)
            for mode in ("input", "output")
        }
        return _plain(sides["input"]), _plain(sides["output"]), _shapes(entries)
    read = {t.name: t for layer in layers for t in layer.inputs}
    made = {t.name: t for layer in layers for t in layer.outputs}
    bound = top.get("Bindings")
    # Bindings repeat for each profile as well.
    names = dict.fromkeys(bare(b)[0] for b in bound if isinstance(b, str)) if isinstance(bound, list) else {}
    inputs = tuple(read[n] for n in names if n in read and n not in made)
    return inputs, tuple(made[n] for n in names if n in made), ()


def _shapes(entries: Sequence[_Entry]) -> tuple[tuple[tuple[str, Shapes], ...], ...]:
    """Least, usual and greatest shape of each input that has them, by profile."""
    profiles: list[dict[str, Shapes]] = []
    for entry in entries:
        told, name = entry.get("ProfileInfo"), entry.get("Name")
        if not isinstance(told, list) or not isinstance(name, str):
            continue
        for k, bounds in enumerate(told):
            found = [_ints(bounds.get(b)) for b in _BOUNDS] if isinstance(bounds, dict) else [None]
            least, usual, most = (*found, None, None)[:3]
            while len(profiles) <= k:
                profiles.append({})
            if least is not None and usual is not None and most is not None:
                profiles[k][bare(name)[0]] = (least, usual, most)
    return tuple(tuple(p.items()) for p in profiles) if any(profiles) else ()


def _plain(tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return tuple({t.name: t for t in tensors}.values())


def _tensors(entries: object, open_: list[str], *, tagged: bool = False) -> tuple[Tensor, ...]:
    if not isinstance(entries, list):
        return ()
    found = [{"Name": e} if isinstance(e, str) else e for e in entries]
    named = [e for e in found if isinstance(e, dict) and isinstance(e.get("Name"), str)]
    return tuple([_tensor(e, open_, tagged=tagged) for e in named])


def _tensor(entry: _Entry, open_: list[str], *, tagged: bool) -> Tensor:
    told = _text(entry.get("Format/Datatype")) or _text(entry.get("Format"))
    type_ = _text(entry.get("Datatype")) or _text(entry.get("DataType")) or told
    dtype, format_ = _typed(type_, told)
    name = entry["Name"] if tagged else bare(entry["Name"])[0]
    shape = _ints(entry.get("Dimensions"))
    if shape is None and entry.get("Dimensions") is not None:
        open_.append(f'"{name}"')
    return Tensor(name, dtype, shape, format_, _ints(entry.get("Strides")))


@functools.lru_cache(maxsize=256)
def _typed(type_: str, told: str) -> tuple[str, str]:
    """Data type and format. A bare type such as "Half" is no format; one that is new stands in small letters."""
    found = _TYPE.search(type_)
    new = type_.lower() if type_.isidentifier() and type_ != told else ""
    return _TYPES[found[1].lower()] if found else new, "" if found and found[0] == told else told


def _ints(value: object) -> tuple[int, ...] | None:
    if not isinstance(value, list):
        return None
    if set(map(type, value)) == {int} and min(value) > -_BEYOND and max(value) < _BEYOND:
        return tuple(value)
    found = tuple(n for v in value if (n := whole_number(v)) is not None)
    return found if len(found) == len(value) else None


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
