"""The engine inspector's JSON, TensorRT 8.2 to 11.x, as ``trtexec --exportLayerInfo`` writes it.

What the releases changed: layers are strings where the engine was built without detailed verbosity; a tensor's type
hides in ``Format/Datatype`` up to 10.x and has a key of its own later; ``Metadata`` with ONNX names came in 8.6;
``I/O Tensors`` took the place of ``Bindings`` in 11.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping

from rtlab.backends._buildlog import DTYPES, origins
from rtlab.core.engine import Layer, Tensor
from rtlab.errors import ReadError

_NEXT = "Export it again with trtexec --exportLayerInfo=layers.json --profilingVerbosity=detailed."
_PROFILE = re.compile(r" \[profile (\d+)\]$")
#: Type names inside the inspector's format sentences, beside those of the build log.
_TYPES = {k.lower(): v for k, v in DTYPES.items()} | {v: v for v in DTYPES.values()}
_TYPE = re.compile(rf"\b({'|'.join(sorted(_TYPES, key=len, reverse=True))})\b", re.IGNORECASE)
#: Keys that have a field of their own in ``Layer``; every other one is an attribute.
_FIELDS = frozenset({
    "Name", "LayerType", "Inputs", "Outputs", "Constants", "TacticName", "TacticValue", "StreamId", "Metadata",
})  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Inspected:
    """What the file tells. ``profile`` is the optimization profile whose layers these are, None where untold."""

    layers: tuple[Layer, ...]
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    notes: tuple[str, ...]
    profile: int | None


def bare(name: str) -> tuple[str, int | None]:
    """A name without its ``[profile N]``, and that number."""
    found = _PROFILE.search(name)
    return (name[: found.start()], int(found[1])) if found else (name, None)


def parse(document: object, file: str) -> Inspected:
    """Read the inspector's document.

    Args:
        document: What the JSON held.
        file: Its name, for messages.

    Raises:
        ReadError: it is not what an inspector writes.
    """
    top = document if isinstance(document, dict) else {"Layers": document}
    entries = top.get("Layers")
    if not isinstance(entries, list) or not entries:
        held = f"keys {_quoted(top)}" if isinstance(document, dict) else f"a JSON {type(document).__name__}"
        raise ReadError(f'Cannot read layers from "{file}": it holds {held}, not a list of layers. {_NEXT}')
    found = [_entry(e, i, file) for i, e in enumerate(entries)]
    profiles = sorted({p for _, p, _ in found if p is not None})
    first = profiles[0] if profiles else None
    kept = [(name, entry) for name, p, entry in found if p is None or p == first]
    layers = tuple(_layer(name, entry, i) for i, (name, entry) in enumerate(kept))
    notes = []
    if len(profiles) > 1:
        notes.append(
            f"The engine has {len(profiles)} optimization profiles; the layers of profile {first} are shown."
        )
    if not any(entry for _, entry in kept):
        notes.append(
            "The file holds names of layers only: no types, tensors or tactics. For these, build the engine with "
            "trtexec --profilingVerbosity=detailed."
        )
    inputs, outputs = _edges(top, layers)
    return Inspected(layers, inputs, outputs, tuple(notes), first)


def _entry(entry: object, index: int, file: str) -> tuple[str, int | None, Mapping[str, object]]:
    name = entry.get("Name") if isinstance(entry, dict) else entry
    if not isinstance(name, str):
        raise ReadError(f'Cannot read layer {index} of "{file}": it has no name. {_NEXT}')
    plain, profile = bare(name)
    return plain, profile, entry if isinstance(entry, dict) else {}


def _layer(name: str, entry: Mapping[str, object], index: int) -> Layer:
    stream = entry.get("StreamId")
    return Layer(
        id=f"{index}:{name}",
        name=name,
        kind=_text(entry.get("LayerType")),
        index=index,
        inputs=_tensors(entry.get("Inputs")),
        outputs=_tensors(entry.get("Outputs")),
        constants=_tensors(entry.get("Constants")),
        tactic=_text(entry.get("TacticName")) or _text(entry.get("TacticValue")),
        stream=stream if isinstance(stream, int) else 0,
        origins=origins(_text(entry.get("Metadata"))),
        attributes={k: v for k, v in entry.items() if k not in _FIELDS},
    )


def _edges(
    top: Mapping[str, object], layers: tuple[Layer, ...]
) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Inputs and outputs of the engine; 11.x tells them apart, before that the layers do."""
    listed = top.get("I/O Tensors")
    entries = [e for e in listed if isinstance(e, dict)] if isinstance(listed, list) else []
    if entries:
        sides = {
            mode: _tensors([e for e in entries if str(e.get("IOMode")).lower().endswith(mode)])
            for mode in ("input", "output")
        }
        return _plain(sides["input"]), _plain(sides["output"])
    read = {t.name: t for layer in layers for t in layer.inputs}
    made = {t.name: t for layer in layers for t in layer.outputs}
    bound = top.get("Bindings")
    # Bindings repeat for each profile as well.
    names = dict.fromkeys(bare(b)[0] for b in bound if isinstance(b, str)) if isinstance(bound, list) else {}
    inputs = tuple(read[n] for n in names if n in read and n not in made)
    return inputs, tuple(made[n] for n in names if n in made)


def _plain(tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return tuple({t.name: t for t in tensors}.values())


def _tensors(entries: object) -> tuple[Tensor, ...]:
    if not isinstance(entries, list):
        return ()
    return tuple(_tensor(e) for e in entries if isinstance(e, dict) and isinstance(e.get("Name"), str))


def _tensor(entry: Mapping[str, object]) -> Tensor:
    told = _text(entry.get("Format/Datatype")) or _text(entry.get("Format"))
    type_ = _text(entry.get("Datatype")) or _text(entry.get("DataType")) or told
    found = _TYPE.search(type_)
    return Tensor(
        name=bare(_text(entry["Name"]))[0],
        dtype=_TYPES[found[1].lower()] if found else "",
        shape=_ints(entry.get("Dimensions")),
        # A bare type such as "Half" is no format.
        format="" if found and found[0] == told else told,
        strides=_ints(entry.get("Strides")),
    )


def _ints(value: object) -> tuple[int, ...] | None:
    if not isinstance(value, list) or not all(isinstance(v, int) for v in value):
        return None
    return tuple(value)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _quoted(names: Mapping[str, object]) -> str:
    return ", ".join(f'"{n}"' for n in list(names)[:6]) or "none"
