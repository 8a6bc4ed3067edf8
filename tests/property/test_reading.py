"""Fuzzing the readers with damaged copies of files: an engine comes out, or an error that says where and why.

The files are excerpts of the corpus, one of each kind and era, so that ten thousand of them take less than a minute.
Chunks are seeded: what one run finds, the next one finds.
"""

from __future__ import annotations

import base64
import copy
import io
import json
import random
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import engines
from rtlab.backends.readers import reading, recognise
from rtlab.core.trace import Recording
from rtlab.errors import ReadError

CHUNKS, EACH = 8, 1250
#: Line and column, index of a layer or row, key, byte or member of an archive.
PLACE = re.compile(
    r"\b(line|lines,|column|layer|row|byte|tensor|profile|value) \d|\d+ (rows|layers|tensors|nodes)\b|(key|member) \""
)
EXPECTED = re.compile(
    r"belongs? there|Give lines with|[Ee]xpected are|Give the layers and the \w+ of one engine|Choose one"
)

CORPUS = Path(__file__).parents[1] / "corpus"

pytestmark = pytest.mark.timeout(240)


def loaded(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"), strict=False)


def excerpt(folder: Path) -> dict[str, bytes]:
    """The first layers of an engine and what was measured of them."""
    given = engines.files(folder)
    document = loaded(given["layers"])
    document["Layers"] = document["Layers"][:4]
    names = {y if isinstance(y, str) else y["Name"] for y in document["Layers"]}
    found: dict[str, Any] = {"layers": document}
    if "profile" in given:
        rows = loaded(given["profile"])
        found["profile"] = [r for r in rows if "count" in r or r["name"] in names]
    if "times" in given:
        found["times"] = loaded(given["times"])[:4]
    if "metadata" in given:
        found["metadata"] = loaded(given["metadata"])
    return {k: json.dumps(v, indent=1).encode() for k, v in found.items()}


def optimized() -> bytes:
    """A model as ONNX Runtime writes it."""
    x, y = (onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [1, 4]) for n in "xy")
    graph = onnx.helper.make_graph([onnx.helper.make_node("Relu", ["x"], ["y"], name="relu")], "g", [x], [y])
    sets = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("com.microsoft.nchwc", 1)]
    return onnx.helper.make_model(graph, opset_imports=sets).SerializeToString()


def results() -> dict[str, Any]:
    """What Polygraphy's ``RunResults.save`` writes, for two runners."""
    file = io.BytesIO()
    np.save(file, np.arange(4, dtype=np.float32))
    array = {"array": base64.b64encode(file.getvalue()).decode(), "polygraphy_class": "ndarray"}
    outputs = {"y": {"values": array, "polygraphy_class": "LazyArray"}}
    kind = {"polygraphy_class": "IterationResult"}
    names = ("trt-runner", "onnxrt-runner")
    runs = [[n, [{"outputs": outputs, "runtime": 0.1, "runner_name": n, **kind}]] for n in names]
    return {"lst": runs, "polygraphy_class": "RunResults"}


def packed(members: dict[str, bytes]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return file.getvalue()


def written(folder: Path, files: dict[str, bytes]) -> dict[str, Path]:
    folder.mkdir()
    for kind, raw in files.items():
        (folder / f"{kind}-file").write_bytes(raw)
    return {kind: folder / f"{kind}-file" for kind in files}


def printed(log: Path) -> bytes:
    """The first lines of what TensorRT-RTX printed, and its list of layers."""
    raw = log.read_bytes()
    listed = raw.rindex(b"Total Host Persistent Memory:")
    return b"\n".join([*raw[:listed].split(b"\n")[:20], raw[listed:]])


def pasted() -> list[dict[str, bytes]]:
    """What people paste, and logs whose listings and tables stand by themselves."""
    texts = {p.stem: p.read_bytes() for p in sorted((CORPUS / "pasted").iterdir())}
    table = texts["profile-table"]
    names = json.dumps([row.split(b"   ")[-1].decode() for row in table.splitlines()[2:-2]]).encode()
    timings = b"Timing: 3us -> a + b\nTiming: 4us -> c"
    return [
        {"layers": names, "profile": table},
        {"layers": names, "log": texts["load-engine"]},
        {"layers": json.dumps(["a + b", "c"]).encode(), "profile": timings},
        {"layers": texts["inspector-piece"]},
        {"log": texts["python-build-trt7"]},
        {"log": texts["layer-lines"]},
    ]


@pytest.fixture(scope="session")
def sets() -> list[dict[str, bytes]]:
    """Files that belong together, by kind; each of them is damaged in turn."""
    found = [excerpt(f) for f in engines.ENGINES]
    found.append({"log": printed(CORPUS / "builds" / "control_flow-fp16-sm86.log")})
    found.append({"layers": printed(CORPUS / "builds" / "digits_inception-fp16-sm80.log")})
    found += pasted()
    io_tensors = [
        {
            "Name": "x", "IOMode": "Input", "DataType": "Float", "Dimensions": [-1, 4],
            "ProfileInfo": [{"MinShape": [1, 4], "OptShape": [2, 4], "MaxShape": [8, 4], "Format": "Row major"}],
        },
        {"Name": "y", "IOMode": "Output", "DataType": "Half", "Dimensions": [-1, 4]},
    ]  # fmt: skip
    inputs = [{"Name": "x", "DataType": "FP8", "Strides": [4, 1]}]
    layer = {"Name": "n [profile 1]", "Inputs": inputs, "Constants": []}
    eleven = json.dumps({"Layers": [layer, "m"], "I/O Tensors": io_tensors}).encode()
    tensors = json.dumps([{"name": "y", "dimensions": "1x4", "values": [1, 2.5, 3, 4]}]).encode()
    saved = json.dumps(results()).encode()
    found.append({"layers": eleven, "output": tensors})
    found.append({"layers": eleven, "results": saved})
    node = {
        "cat": "Node",
        "name": "relu_kernel_time",
        "dur": 7,
        "ts": 2,
        "ph": "X",
        "args": {"op_name": "Relu"},
    }
    events = [{"cat": "Session", "name": "model_run", "dur": 9, "ts": 1, "ph": "X", "args": {}}, node]
    found.append({"ort_profile": json.dumps(events).encode(), "ort_model": optimized()})
    members = {f"{k}.json": v for k, v in found[1].items()}
    members |= {"engine.trt": b"ftrt\0\0\0\0", "timing.cache": b"ptrt"}
    members |= {"build_cfg.json": b'{"engine_build_duration": 3}', "plan_cfg.json": b'{"num_layers": "4"}'}
    found.append({"archive": packed(members)})
    return found


def flip(raw: bytes, r: random.Random, _: bytes) -> bytes:
    data = bytearray(raw)
    for _i in range(r.randint(1, 4)):
        data[r.randrange(len(data))] = r.randrange(256)
    return bytes(data)


def truncate(raw: bytes, r: random.Random, _: bytes) -> bytes:
    return raw[: r.randrange(len(raw))]


def splice(raw: bytes, r: random.Random, other: bytes) -> bytes:
    return raw[: r.randrange(len(raw))] + other[r.randrange(len(other)) :]


def insert(raw: bytes, r: random.Random, _: bytes) -> bytes:
    at = r.choice([0, len(raw), r.randrange(len(raw))])
    words = [
        b"NaN", b"-Infinity", b'"', b"\\", b"}", b"[", b",", b"\0", b"\xff\xfe", b"\xef\xbb\xbf", b"\r\n",
        b" [profile 1]",
        b"[07/07/2026-06:09:15] [TRT] [W] a line\n", b"\n&&&& PASSED TensorRT.trtexec\n", b"9" * 5000, b"[" * 3000,
        b'{"a":' * 1500, b"true", b"\x1e", "é".encode(), b'"Name": 3,', b"ftrt", b"PK\x03\x04", b"TRT-8600-",
    ]  # fmt: skip
    return raw[:at] + r.choice(words) + raw[at:]


def recode(raw: bytes, r: random.Random, _: bytes) -> bytes:
    code = r.choice(["utf-16", "utf-16-le", "utf-8-sig", "utf-32"])
    return raw.decode("utf-8", "replace").replace("\n", r.choice(["\n", "\r\n"])).encode(code)


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every container of a JSON document with each of its keys."""
    found: list[tuple[Any, Any]] = []
    stack = [value]
    while stack:
        top = stack.pop()
        items = top.items() if isinstance(top, dict) else enumerate(top) if isinstance(top, list) else ()
        items = list(items)
        found += [(top, k) for k, _ in items]
        stack += [v for _, v in items]
    return found


STRANGE = [
    None, True, False, 0, -1, 1.5, 10**25, 1e308, float("nan"), float("inf"), "", "7", "x", "a" * 300, "ü\u2028",
    "-0.5",
    [], {}, [[]], [None], {"Name": "z"}, [{"Name": 1}], [True, 3], ["3", "4"], [1.0, 2.5],
]  # fmt: skip


def restructure(raw: bytes, r: random.Random, _: bytes) -> bytes:
    """Right keys with wrong values, keys gone, lists doubled: what a JSON parser lets through."""
    try:
        document = json.loads(raw, strict=False)
    except ValueError:
        return flip(raw, r, raw)
    for _i in range(r.randint(1, 3)):
        found = places(document)
        if not found:
            break
        holder, key = r.choice(found)
        action = r.choice(["swap", "swap", "delete", "double", "rename"])
        if action == "swap":
            holder[key] = copy.deepcopy(r.choice(STRANGE))
        elif action == "delete":
            del holder[key]
        elif action == "double" and isinstance(holder[key], list):
            holder[key] = holder[key] * 2
        elif isinstance(holder, dict):
            holder[r.choice(["Name", "name", "count", "Layers", "zz"])] = holder.pop(key)
    return json.dumps(document).encode()


def twice(raw: bytes, r: random.Random, _: bytes) -> bytes:
    """A key, or the whole file, stands twice."""
    keys = [*re.finditer(rb'"\w+" ?: ?("[^"]*"|-?[\d.]+)', raw)]
    if not keys or r.random() < 0.2:
        return raw + r.choice([b"", b"\n"]) + raw
    key = r.choice(keys)
    return raw[: key.start()] + key[0] + b", " + raw[key.start() :]


DAMAGE: list[Callable[[bytes, random.Random, bytes], bytes]] = [
    flip, truncate, splice, insert, recode, restructure, restructure, restructure, twice,
]  # fmt: skip


def outcome(paths: dict[str, Path], select: int | None) -> Recording | ReadError:
    """What the reader gave; any exception that is not its own is a fault."""
    try:
        return reading.read(paths, select=select)
    except ReadError as error:
        return error


def kind_of(path: Path) -> str:
    try:
        return recognise.detect_kind(path)
    except ReadError as error:
        return "unknown" if path.name in str(error) else "unnamed"


@pytest.mark.slow(but="^0$")
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_a_damaged_file_is_read_or_refused_with_its_place(chunk, sets, tmp_path, record_property) -> None:
    r = random.Random(chunk)  # noqa: S311 - not for secrets
    counts = {"read": 0, "refused": 0}
    every = [raw for files in sets for raw in files.values()]
    whole = [written(tmp_path / str(i), files) for i, files in enumerate(sets)]
    for number in range(EACH):
        chosen = r.randrange(len(sets))
        kind = r.choice(list(sets[chosen]))
        damage = r.choice(DAMAGE)
        paths = whole[chosen] | {kind: tmp_path / f"{kind}-file"}
        paths[kind].write_bytes(damage(sets[chosen][kind], r, r.choice(every)))
        assert kind_of(paths[kind]) in {*recognise.KINDS, "unknown"}
        found = outcome(paths, r.choice([None, None, None, 0, 1]))
        what = f"chunk {chunk}, file {number}, {damage.__name__} of {kind}: {found}"
        if isinstance(found, ReadError):
            counts["refused"] += 1
            assert any(p.name in str(found) for p in paths.values()), what
            assert PLACE.search(str(found)), what
            assert EXPECTED.search(str(found)), what
        else:
            counts["read"] += 1
            ids = {y.id for y in found.engine.layers}
            assert len(ids) == len(found.engine.layers), what
            assert found.profile is None or set(found.profile.samples) <= ids, what
            times = [] if found.profile is None else [*found.profile.samples.values(), found.profile.total]
            assert all(np.isfinite(t).all() and (t >= 0).all() for t in times), what
    for word, count in counts.items():
        record_property(word, count)
        print(f"chunk {chunk}: {count} of {EACH} damaged files {word}")  # noqa: T201 - the result of the run
    assert EACH == sum(counts.values())
    assert min(counts.values()) > EACH // 20, "damage that is always read, or never, tests nothing"


def test_the_excerpts_are_whole(sets, tmp_path: Path) -> None:
    for i, files in enumerate(sets):
        paths = written(tmp_path / str(i), files)
        assert {k: k for k in files} == {k: recognise.detect_kind(p) for k, p in paths.items()}
        reading.read(paths)
