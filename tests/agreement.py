"""Does a verdict of TensorRT-RTX hold for TensorRT?

``RTLAB_RECORDED=FOLDER python tests/agreement.py`` writes what rtlab ships.

Of the recorded engines those count whose ONNX graph was recorded with them, or whose layers tell enough to remake it
(``remade.py``). The graph gets random weights, is built with TensorRT-RTX for the GPU that the engine is for or the
nearest that it builds for, and each pair of neighbours is looked up in both.
"""

from __future__ import annotations

import collections
import dataclasses
import datetime
import json
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

import engines
import remade
import rtlab
from rtlab.analyses import why
from rtlab.analyses.fusion import relate_engine
from rtlab.analyses.why.missed_fusions import find_readers, same_layer
from rtlab.core.model import Model
from rtlab.core.phrases import pluralize

WHERE = Path(why.__file__).with_name("agreement.json")
#: Of engines whose files do not tell it: which release, by those who published them; which network; for which GPU.
RELEASES = {
    "fuzzy-jetson": "TensorRT 10.1", "fuzzy-": "TensorRT 10.4", "trex-resnet18": "TensorRT about 8.4",
    "trex-resnet50": "TensorRT 8.2 to 8.4", "trex-mobilenet": "TensorRT 8.2 to 8.5",
}  # fmt: skip
NETWORKS = {"alexnet": "AlexNet", "mobilenet": "MobileNetV2", "resnet18": "ResNet18", "resnet50": "ResNet50"}
#: TensorRT-RTX builds for neither a TITAN RTX nor an Orin by itself; the nearest generation stands for them.
TARGETS = {"a100": "sm80"}
_PAIR = frozenset({"QuantizeLinear", "DequantizeLinear"})


#: How the precision of a model with pairs is called.
QUANTIZED = "Q/DQ"


@dataclasses.dataclass(frozen=True)
class PairCount:
    """Pairs of neighbours of one kind, such as ``Conv | Relu``, in one precision: who makes one step of them.

    ``remade`` of them stand in graphs that were remade from an engine's layers.
    """

    kind: str
    precision: str
    both: int
    rtx: int
    tensorrt: int
    neither: int
    remade: int

    @property
    def count(self) -> int:
        """All of them."""
        return self.both + self.rtx + self.tensorrt + self.neither

    @property
    def alike(self) -> int:
        """Those of which both compilers make the same: one step, or two."""
        return self.both + self.neither


@dataclasses.dataclass(frozen=True)
class CountedEngine:
    """A recorded engine whose pairs were counted; ``target`` is what its graph was built for.

    ``alike`` are those of which both compilers make the same.
    """

    name: str
    network: str
    compiler: str
    precision: str
    target: str
    remade: bool
    pairs: int
    alike: int


@dataclasses.dataclass(frozen=True)
class Agreement:
    """What was counted, on which day, of which compilers and engines."""

    date: str
    compilers: tuple[str, ...]
    engines: tuple[CountedEngine, ...]
    pairs: tuple[PairCount, ...]

    @property
    def networks(self) -> tuple[str, ...]:
        """The networks of the engines, once each."""
        return tuple(dict.fromkeys(e.network for e in self.engines))

    @property
    def summary(self) -> tuple[str, ...]:
        """A sentence for each precision: on how much it rests, and how many pairs are alike."""
        sentences = []
        for precision in dict.fromkeys(p.precision for p in self.pairs):
            mine = [p for p in self.pairs if p.precision == precision]
            engines = [e for e in self.engines if e.precision == precision]
            remade = sum(e.remade for e in engines)
            total, alike = sum(p.count for p in mine), sum(p.alike for p in mine)
            sentences.append(
                f"{precision}: {alike} of {total} pairs are one layer in both or in neither, "
                f"{sum(p.rtx for p in mine)} in TensorRT-RTX alone, {sum(p.tensorrt for p in mine)} in TensorRT alone "
                f"({pluralize(len(engines), 'engine')}, {remade} remade)."
            )
        return tuple(sentences)


def load_agreement() -> Agreement:
    """The table that rtlab brings along."""
    table = json.loads(WHERE.read_text(encoding="utf-8"))
    return Agreement(
        table["date"],
        tuple(table["compilers"]),
        tuple(CountedEngine(**row) for row in table["engines"]),
        tuple(PairCount(**row) for row in table["pairs"]),
    )


@dataclasses.dataclass(frozen=True)
class Asked:
    """A recorded engine: its graph, whether one layer of it does two nodes' work, and how it computes."""

    folder: Path
    model: Model
    own: bool
    precision: str
    one: Callable[[str, str], bool | None]

    @property
    def target(self) -> str:
        return next((t for part, t in TARGETS.items() if part in self.folder.name), "sm86")

    def engine(self) -> rtlab.Result:
        """TensorRT-RTX's engine of the same graph: what is quantized stays so, the rest has the engine's type."""
        study = rtlab.Study(self.model)
        study.add("rtx", precision="fp16" if self.precision == "fp16" else "fp32", target=self.target)
        study.run(["rtx"], compare=False, budget_s=0)
        return study["rtx"]


def weighed(path: Path) -> Model:
    """A recorded graph, whose weights nobody recorded, with random ones of their size."""
    proto = onnx.load(path, load_external_data=False)
    random = np.random.default_rng(0)
    for tensor in proto.graph.initializer:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            spread = np.sqrt(2 / max(1, int(np.prod(tensor.dims[1:]))))
            numbers = random.standard_normal(9973, np.float32) * np.float32(spread)
            tensor.CopyFrom(numpy_helper.from_array(np.resize(numbers, tuple(tensor.dims)), tensor.name))
    return rtlab.load(proto)


def asked(folders: Iterable[Path]) -> Iterator[Asked]:
    for folder in folders:
        layers = engines.files(folder).get("layers")
        if layers is None or folder.name in engines.NAMES_ONLY or folder.name.startswith("cookbook"):
            continue
        theirs = rtlab.read(layers=layers)
        (result,) = theirs.values()
        half = any(y.precision == "fp16" for y in result.engine.layers)
        floats = "fp16" if half else "fp32"
        if graphs := [*folder.glob("*.onnx")]:
            study = rtlab.Study(weighed(graphs[0]))
            study.read("tensorrt", layers=layers)
            mapping = study["tensorrt"].mapping
            yield Asked(folder, study.model, True, floats, lambda a, b, m=mapping: same_layer(m, a, b))
            continue
        made = remade.Remade(layers, sized=True)
        model = rtlab.load(onnx.shape_inference.infer_shapes(made.model.proto(), strict_mode=True))
        homes = {n.id: made.homes[n.name] for n in model.top if n.name in made.homes}
        quantized = any(n.op in _PAIR for n in model.top)

        def one(a: str, b: str, homes: dict[str, set[int]] = homes) -> bool | None:
            return bool(homes[a] & homes[b]) if a in homes and b in homes else None

        yield Asked(folder, model, False, QUANTIZED if quantized else floats, one)


def neighbours(model: Model) -> Iterator[tuple[str, str]]:
    """Pairs of nodes: who computes and who reads it, over what only converts; and either beside its Q or DQ."""
    for node in model.top:
        for value in node.outputs:
            direct = [r.id for r in model.consumers.get(value, ())]
            if node.op == "DequantizeLinear":
                if not _of_weights(model, node.inputs[0]):
                    yield from ((node.id, r) for r in direct if model.by_id[r].op not in _PAIR)
                continue
            if node.op == "QuantizeLinear":
                continue
            yield from ((node.id, r) for r in direct if model.by_id[r].op == "QuantizeLinear")
            yield from ((node.id, r) for r in dict.fromkeys(find_readers(model, value)))


def _of_weights(model: Model, value: str) -> bool:
    maker = model.producers.get(value)
    return value in model.known or (
        maker is not None and all(_of_weights(model, v) for v in maker.inputs if v)
    )


def count(engine: Asked, mine: rtlab.Result) -> dict[str, collections.Counter[str]]:
    built = relate_engine(mine.engine, mine.prepared.model, mine.prepared.model)
    found: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for first, second in neighbours(engine.model):
        one, other = same_layer(built, first, second), engine.one(first, second)
        if one is None or other is None:
            continue
        where = ("both" if other else "rtx") if one else ("tensorrt" if other else "neither")
        ops = (engine.model.by_id[n].op for n in (first, second))
        found[" | ".join(ops)][where] += 1
    return found


def table() -> dict[str, object]:
    total: dict[tuple[str, str], collections.Counter[str]] = collections.defaultdict(collections.Counter)
    rows_of_engines, compilers = [], set()
    for engine in asked(sorted((Path(os.environ["RTLAB_RECORDED"]) / "engines").iterdir())):
        mine = engine.engine()
        compilers.add(mine.engine.title)
        name = engine.folder.name
        found = count(engine, mine)
        for kind, counts in found.items():
            total[kind, engine.precision].update(counts)
            total[kind, engine.precision]["remade"] += 0 if engine.own else counts.total()
        rows_of_engines.append({
            "name": name,
            "network": next(n for part, n in NETWORKS.items() if part in name),
            "compiler": next(r for p, r in RELEASES.items() if name.startswith(p)),
            "precision": engine.precision,
            "target": engine.target,
            "remade": not engine.own,
            "pairs": sum(c.total() for c in found.values()),
            "alike": sum(c["both"] + c["neither"] for c in found.values()),
        })  # fmt: skip
    wheres = ("both", "rtx", "tensorrt", "neither")
    rows = [
        {"kind": kind, "precision": precision, **{k: counts[k] for k in (*wheres, "remade")}}
        for (kind, precision), counts in total.items()
    ]
    rows.sort(key=lambda r: (-sum(r[k] for k in wheres), r["kind"], r["precision"]))
    return {
        "date": datetime.date.today().isoformat(),  # noqa: DTZ011 - the day where it was made
        "compilers": sorted(compilers),
        "engines": rows_of_engines,
        "pairs": rows,
    }


if __name__ == "__main__":
    WHERE.write_text(json.dumps(table(), indent=1) + "\n", encoding="utf-8")
