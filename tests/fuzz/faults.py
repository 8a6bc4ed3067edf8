"""Faults that leave a file readable as far as its format goes: each kind of file has a function that puts some in.

A fault in the bytes ends at the parser. These exchange, drop, double and stretch what a parser hands on.
"""

from __future__ import annotations

import base64
import contextlib
import io
import json
import lzma
import random
import re
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

#: Numbers at which programs break, and those that are merely others.
NUMBERS = (0, 1, -1, 2, 3, 7, 64, 65, 255, 2**31 - 1, 2**31, -(2**31), 2**53, 2**63 - 1, -(2**63))
NAMES = (
    "", " ", "#0", "a, b", "[x]", "a|b", "\x1b[31m", "\u202eabc", "n" * 5000, "</script>", "../x", "%s{}", "NaN",
    "é\u0301", "\0", "__class__", "constructor",
)  # fmt: skip
VALUES = (
    None, True, -1, 0, 1e308, 2**63, "", "x", [], {}, [[]], {"a": 1}, "9" * 400, float("inf"), float("nan"),
)  # fmt: skip
#: The part of a model's faults that are other names, and how often messages of a kind are drawn beside the others.
RENAMED = 0.5
DRAWN = {"NodeProto": 2, "AttributeProto": 6, "TensorProto": 6, "ValueInfoProto": 3, "Dimension": 3}


def of_bytes(rng: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    made = bytearray(data)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(made) + 1)
        size = min(len(made) - at, int(2 ** rng.uniform(0, 10)))
        fault = rng.randrange(5)
        if fault == 0:
            made[at : at + 1] = bytes([rng.randrange(256)])
        elif fault == 1:
            del made[at : at + size]
        elif fault == 2:
            del made[at:]
        elif fault == 3:
            made[at:at] = made[at : at + size] * rng.randint(1, 3)
        else:
            made[at : at + size] = rng.choice(others)[:size]
    return bytes(made)


def of_model(rng: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Fields of a model's messages, those of every graph, node and tensor in it included."""
    proto = onnx.load_model_from_string(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        if rng.random() < RENAMED:
            _rename(rng, proto)
            continue
        # Most of a model's messages are dimensions: a kind is drawn first.
        kinds: dict[str, list[Any]] = {}
        for message in messages(proto):
            kinds.setdefault(type(message).__name__, []).append(message)
        drawn = [kind for kind in sorted(kinds) for _ in range(DRAWN.get(kind, 1))]
        message = rng.choice(kinds[rng.choice(drawn)])
        fields = [f for f, _ in message.ListFields()]
        if fields:
            _change_field(rng, message, rng.choice(fields), proto)
    return bytes(proto.SerializeToString())


def _rename(rng: random.Random, proto: onnx.ModelProto) -> None:
    """A node, or a value of the main graph wherever it is named, gets another name."""
    graph, new = proto.graph, rng.choice(NAMES)
    if not graph.node:
        return
    node = rng.choice(graph.node)
    if rng.random() < 0.5:
        node.name = rng.choice((new, rng.choice(graph.node).name))
        return
    old = rng.choice([*node.input, *node.output, ""])
    for values in (graph.input, graph.output, graph.value_info, graph.initializer):
        for value in values:
            value.name = new if value.name == old else value.name
    for one in graph.node:
        one.input[:] = [new if v == old else v for v in one.input]
        one.output[:] = [new if v == old else v for v in one.output]


def messages(message: Any) -> Iterator[Any]:
    todo = [message]
    while todo:
        one = todo.pop()
        yield one
        for field, value in one.ListFields():
            if field.type == field.TYPE_MESSAGE:
                todo.extend(value if field.is_repeated else [value])


def _change_field(rng: random.Random, message: Any, field: Any, proto: onnx.ModelProto) -> None:
    value = getattr(message, field.name)
    inner = field.type == field.TYPE_MESSAGE
    if not field.is_repeated:
        if not inner:
            # An enumeration may not have what is drawn.
            with contextlib.suppress(ValueError):
                setattr(message, field.name, _other(rng, field, value, proto))
        elif rng.random() < 0.3:
            message.ClearField(field.name)
        return
    items = [_copied(item) if inner else item for item in value]
    at = rng.randrange(len(items))
    fault = rng.randrange(4)
    if fault == 0:
        del items[at]
    elif fault == 1:
        items.append(items[at])
    elif fault == 2 or inner:
        other = rng.randrange(len(items))
        items[at], items[other] = items[other], items[at]
    else:
        items[at] = _other(rng, field, items[at], proto)
    message.ClearField(field.name)
    getattr(message, field.name).extend(items)


def _copied(message: Any) -> Any:
    copy = type(message)()
    copy.CopyFrom(message)
    return copy


def _other(rng: random.Random, field: Any, value: Any, proto: onnx.ModelProto) -> Any:
    if field.type == field.TYPE_STRING or (field.type == field.TYPE_BYTES and len(value) < 100):
        names = [n.name for n in proto.graph.node] + [o for n in proto.graph.node for o in n.output]
        text = rng.choice([*NAMES, *rng.sample(names, min(4, len(names)))])
        return text if field.type == field.TYPE_STRING else text.encode()
    if field.type == field.TYPE_BYTES:
        made = bytearray(value)
        if rng.random() < 0.3:
            return bytes(made[: rng.randrange(len(made))])
        width = rng.choice((1, 2, 4, 8))
        at = rng.randrange(len(made) // width or 1) * width
        made[at : at + width] = rng.randbytes(min(width, len(made) - at))
        return bytes(made)
    if field.type in {field.TYPE_FLOAT, field.TYPE_DOUBLE}:
        return rng.choice((0.0, -1.0, 1e38, 1e-45, float("nan"), float("inf")))
    if field.type == field.TYPE_ENUM:
        return rng.randrange(26)
    number = rng.choice((*NUMBERS, value + 1, value - 1, value * 2))
    bits = 31 if field.type == field.TYPE_INT32 else 63
    return max(-(2**bits), min(2**bits - 1, number))


def of_json(rng: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    tree = json.loads(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        places = list(_places(tree))
        if places:
            rng.choice((_move, _change, _change))(rng, *rng.choice(places), json.loads(rng.choice(others)))
    return json.dumps(tree).encode()


def _move(rng: random.Random, holder: Any, key: Any, other: Any) -> None:
    fault = rng.randrange(4)
    if fault == 0:
        del holder[key]
    elif fault == 1 and isinstance(holder, list):
        holder.insert(rng.randrange(len(holder) + 1), holder[key])
    elif isinstance(holder, list):
        rng.shuffle(holder)
    elif fault == 2:
        holder[rng.choice(NAMES)] = holder.pop(key)
    elif donors := list(_places(other)):
        donor, name = rng.choice(donors)
        holder[key] = donor[name]


def _change(rng: random.Random, holder: Any, key: Any, _: Any) -> None:
    value = holder[key]
    if rng.random() < 0.15:
        holder[key] = rng.choice(VALUES)
    elif isinstance(value, str):
        at = rng.randrange(len(value) + 1)
        holder[key] = rng.choice((rng.choice(NAMES), value[:at], value[:at] + rng.choice(NAMES) + value[at:]))
    elif isinstance(value, int):
        holder[key] = rng.choice((*NUMBERS, value * 2, value + 1, -value))
    elif isinstance(value, float):
        holder[key] = rng.choice((*NUMBERS, value * 2, value + 0.5, -value))


def _places(tree: Any) -> Iterator[tuple[Any, Any]]:
    todo = [tree]
    while todo:
        one = todo.pop()
        if isinstance(one, (dict, list)):
            for key in list(one) if isinstance(one, dict) else range(len(one)):
                yield one, key
                todo.append(one[key])


def of_recording(rng: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """A recorded build: its JSON, or one of the two models that are packed in it."""
    tree = json.loads(data)
    part = rng.choice(("source", "graph"))
    if rng.random() < 0.5 or not isinstance(tree.get(part), dict):
        return of_json(rng, data, others)
    model = lzma.decompress(base64.b64decode(tree[part]["onnx"]))
    damaged = lzma.compress(of_model(rng, model, ()))
    tree[part]["onnx"] = base64.b64encode(damaged).decode("ascii")
    return json.dumps(tree).encode()


def of_text(rng: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Lines of a text that are gone, twice there, elsewhere, cut, of another text, or have other numbers and names."""
    lines = data.decode("utf-8", "replace").split("\n")
    for _ in range(rng.choice((1, 1, 2, 4))):
        at = rng.randrange(len(lines))
        fault = rng.randrange(7)
        if fault == 0 and len(lines) > 1:
            del lines[at]
        elif fault == 1:
            lines.insert(rng.randrange(len(lines) + 1), lines[at])
        elif fault == 2:
            until = min(len(lines), at + rng.randint(1, 30))
            lines[at:until] = reversed(lines[at:until])
        elif fault == 3:
            lines[at] = lines[at][: rng.randrange(len(lines[at]) + 1)]
        elif fault == 4:
            other = rng.choice(others).decode("utf-8", "replace").split("\n")
            lines.insert(at, rng.choice(other))
        elif fault == 5:
            lines[at] = re.sub(r"\d+(\.\d+)?", lambda _: str(rng.choice(NUMBERS)), lines[at], count=1)
        else:
            words = lines[at].split(" ")
            words[rng.randrange(len(words))] = rng.choice(NAMES)
            lines[at] = " ".join(words)
    return "\n".join(lines).encode("utf-8", "replace")


def of_cache(rng: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """A calibration cache: as a text, or with other scales and names."""
    if rng.random() < 0.3:
        return of_text(rng, data, others)
    lines = data.decode().split("\n")
    for _ in range(rng.randint(1, 5)):
        scale = rng.choice(
            ("7f800000", "80000000", "1", *[f"{rng.randrange(0x30000000, 0x48000000):x}"] * 20)
        )
        lines[rng.randrange(1, len(lines) - 1)] = (
            f"{rng.choice(('a, b', '#0', 'é', '[x]'))}{rng.random()}: {scale}"
        )
    return "\n".join(lines).encode()


def of_archive(rng: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Members that are damaged, gone, renamed, or another archive's; packed again, so that all checksums are right."""
    members, donors = _unpacked(data), _unpacked(rng.choice(others))
    for _ in range(rng.choice((1, 1, 2))):
        name = rng.choice(sorted(members))
        fault = rng.randrange(6)
        if fault == 0 and len(members) > 1:
            del members[name]
        elif fault == 1:
            members[rng.choice(("x.json", "a/b.log", "../out.json", "é.txt", name + "\n"))] = members.pop(
                name
            )
        elif fault == 2:
            members[name] = donors.get(name, rng.choice(sorted(donors.values())))
        else:
            own = [m for n, m in donors.items() if n.endswith(Path(name).suffix)]
            fault_of = {".json": of_json, ".onnx": of_model}.get(Path(name).suffix, of_text)
            # What stands there by now may be of another kind.
            with contextlib.suppress(Exception):
                members[name] = fault_of(rng, members[name], own or [members[name]])
    return packed(members, rng.choice((zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED)))


def packed(members: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", method) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return made.getvalue()


def _unpacked(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def of_samples(rng: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    """Arrays of an ``.npz`` whose numbers, type or shape are others, packed again."""
    with np.load(io.BytesIO(data)) as opened:
        arrays = {name: opened[name] for name in opened.files}
    for name in list(arrays):
        array = arrays.pop(name)
        fault = rng.randrange(16)
        if fault == 0:
            array = array.astype(rng.choice(("f2", "f8", "i4", "u1", ">f4", "?", "c8", "U8")))
        elif fault == 1:
            array = array.reshape(rng.choice(((-1,), (1, *array.shape), array.shape[::-1])))
        elif fault == 2:
            array = array[: rng.randrange(len(array) + 1)]
        elif fault == 3:
            name = rng.choice(NAMES[1:])  # noqa: PLW2901 - an array of another name
        else:
            at = rng.randrange(max(array.size, 1))
            array = array.copy()
            array.reshape(-1)[at : at + rng.randint(1, 9)] = rng.choice(
                (0, 1e30, -1, float("nan"), float("inf"))
            )
        arrays[name.replace("/", "_").replace("\0", "")] = array
    made = io.BytesIO()
    rng.choice((np.savez, np.savez_compressed))(made, **arrays)
    return made.getvalue()


Fault = Callable[[random.Random, bytes, Sequence[bytes]], bytes]
