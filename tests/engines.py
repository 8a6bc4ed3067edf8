"""The engines of the corpus as files, and one of them many times in a row: an engine of thousands of layers.

Of what is repeated, tensors lead from copy to copy; labels and times name the nodes and layers of their own copy.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import onnx
import pytest

import shelf
from rtlab import backends
from rtlab.analyses.timing.times import Timing, summarize_profile
from rtlab.backends.readers.reading import Trtexec
from rtlab.core.engine import Engine
from rtlab.core.model import Model, load, make_empty_model, wrap
from rtlab.core.progress import Silent
from rtlab.core.protocols import BuildRequest
from rtlab.core.variant import Variant

FOLDER = Path(__file__).parent / "corpus" / "engines"
ENGINES = sorted(FOLDER.iterdir())
#: Engines whose layer file holds names and nothing else: built without detailed verbosity.
NAMES_ONLY = frozenset({"detr-names-only", "written-names-only"})
MOBILE = FOLDER / "written-mobile-fp16"
RESIDUAL = FOLDER / "written-residual-int8"


def of(folders: list[Path]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("folder", folders, ids=lambda f: f.name)


each = of(ENGINES)
detailed = of([f for f in ENGINES if f.name not in NAMES_ONLY])


def files(folder: Path | str) -> dict[str, Path]:
    names = {
        "layers": ("engine.graph.json", "resnet18_trt_engine_info.json", "detr-layer-info.json"),
        "profile": ("engine.profile.json", "detr-profile.json"),
        "times": ("engine.timing.json",),
        "metadata": ("engine.profile.metadata.json", "engine.metadata.json"),
    }
    paths = {k: next((p for n in v if (p := FOLDER / folder / n).exists()), None) for k, v in names.items()}
    return {k: p for k, p in paths.items() if p is not None}


def read(folder: Path | str) -> tuple[Engine, Timing | None]:
    recording = Trtexec().read(files(folder))
    engine, profile = recording.engine, recording.profile
    return engine, summarize_profile(profile, engine) if profile else None


def structure(folder: Path | str) -> Model:
    path = FOLDER / folder / "model.structure-only.onnx"
    return load(path, name=path.parent.name, weights=False) if path.exists() else make_empty_model()


def model(folder: Path) -> Model:
    """The repeated model; not ``rtlab.load``, because scores are no image, and no weights are there."""
    return wrap(onnx.load(folder / "model.onnx", load_external_data=False), name="repeated")


def proto(copies: int) -> onnx.ModelProto:
    source = _source()
    graph = source.graph
    weights = {t.name for t in graph.initializer}
    made = onnx.GraphProto(name="repeated")
    made.initializer.extend(graph.initializer)
    for i in range(copies):
        for node in graph.node:
            copy = made.node.add()
            copy.CopyFrom(node)
            copy.name = f"c{i}{node.name}"
            copy.input[:] = [n if n in weights or not n else _value(n, i) for n in node.input]
            copy.output[:] = [_value(n, i) for n in node.output]
    for infos, new, name in (
        (graph.input, made.input, _value("input", 0)),
        (graph.output, made.output, _value("output", copies - 1)),
    ):
        info = new.add()
        info.CopyFrom(infos[0])
        info.name = name
    return onnx.helper.make_model(made, opset_imports=source.opset_import, ir_version=8)


def write(folder: Path, layers: int) -> int:
    """Write ``layers.json``, ``profile.json`` and ``model.onnx``, of at least so many layers; of how many copies."""
    document, profile = (json.loads(files(MOBILE)[kind].read_text()) for kind in ("layers", "profile"))
    copies = -(-layers // len(document["Layers"]))
    ends, names = [_value("input", 0), _value("output", copies - 1)], _names()
    content = {"Layers": _copied(document["Layers"], names, copies), "Bindings": ends}
    (folder / "layers.json").write_text(json.dumps(content))
    (folder / "profile.json").write_text(json.dumps([profile[0], *_copied(profile[1:], names, copies)]))
    onnx.save(proto(copies), folder / "model.onnx")
    return copies


def googlenet_log(folder: Path) -> Path:
    """A log without layers: the decisions on GoogLeNet that the documented rules predict, 141, 84 and 66 layers."""
    request = BuildRequest(shelf.load("googlenet").model, Variant.of("fp32", target="sm86"))
    path = folder / "googlenet.log"
    path.write_text(backends.get("classic").build(request, Silent()).log, encoding="utf-8")
    return path


def _source() -> onnx.ModelProto:
    return onnx.load(MOBILE / "model.structure-only.onnx", load_external_data=False)


def _value(name: str, copy: int) -> str:
    return f"c{copy + 1}input" if name == "output" else f"c{copy}{name}"


def _names() -> re.Pattern[str]:
    names = {n for node in _source().graph.node for n in (node.name, *node.output)} - {"output"}
    names |= {n.replace(".", "_") for n in names}
    return re.compile("|".join(re.escape(n) for n in sorted(names, key=len, reverse=True)))


def _copied(rows: list[Any], names: re.Pattern[str], copies: int) -> list[Any]:
    marked = [_each(y, lambda text: names.sub(lambda m: f"\0{m[0]}", text)) for y in rows]

    def named(text: str, i: int) -> str:
        return _value(text, i) if text in {"input", "output"} else text.replace("\0", f"c{i}")

    return [_each(y, lambda text, i=i: named(text, i)) for i in range(copies) for y in marked]  # type: ignore[misc]


def _each(value: Any, change: Any) -> Any:
    if isinstance(value, dict):
        return {k: _each(v, change) for k, v in value.items()}
    if isinstance(value, list):
        return [_each(v, change) for v in value]
    return change(value) if isinstance(value, str) else value
