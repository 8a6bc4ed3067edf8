"""The samples beside files: operators, shapes, and the spread of each weight; as made of few small pictures too."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

import rtlab.testing
import shelf
from rtlab import samples
from rtlab.core.model import Model
from rtlab.core.task import Task
from rtlab.samples import architectures, transformers
from snapshots import Golden

#: Sums of fitted weights differ from processor to processor in their fifth digit.
TOLERANCE = {"rel": 1e-3, "least": 1e-4}
CONVOLUTIONAL = ("googlenet", "resnet50", "mobilenet_v2", "csp_detector")
LARGE = (*CONVOLUTIONAL, "bert")


def spread(array: np.ndarray) -> list[Any]:
    if array.size <= 4 or not np.issubdtype(array.dtype, np.floating):
        return [array.tolist() if array.size <= 40 else [*array.shape, int(array.sum(dtype=np.int64))]]
    rows = array.reshape(len(array), -1)
    deviation = float(array.std())
    unit = deviation if deviation > 1e-6 else 1.0
    means = [float(x.mean()) / unit for x in (array, rows[0], rows[-1])]
    return [[*array.shape], round(deviation, 6), *(round(m, 6) for m in means)]


def facts(model: Model) -> dict[str, Any]:
    """What a sample is made of; identical weights of several layers stand in one row."""
    weights = {n: v.const_value.numpy() for n, v in model.ir.graph.initializers.items()}
    rows: dict[str, list[Any]] = {}
    for name, array in weights.items():
        found = spread(array)
        again = next((k for k, v in rows.items() if v[0] == found[0] and v == found), None)
        rows[name] = found if again is None else [f"as {again}"]
    attributes: Counter[str] = Counter()
    for node in model.nodes:
        told = {k: v for k, v in node.attributes.items() if isinstance(v, (int, float, str, list, tuple))}
        attributes[f"{node.op} {told}"] += 1
    return {
        "opset": [model.opset, model.ir.ir_version],
        "inputs": {n: [model.values[n].dtype, *map(str, model.values[n].shape)] for n in model.inputs},
        "outputs": {n: [model.values[n].dtype, *map(str, model.values[n].shape)] for n in model.outputs},
        "parameters": sum(a.size for a in weights.values()),
        "nodes": dict(sorted(attributes.items())),
        "edges": sum(len(n.inputs) for n in model.nodes),
        "weights": rows,
    }


def small(name: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """An architecture whose weights are fitted to two pictures of 64x64, and the pictures that it asks for."""
    if name == "bert":
        for constant, value in {"_SENTENCES": 1, "_TOKENS": 16, "_WORDS": 128, "_LAYERS": 1}.items():
            monkeypatch.setattr(transformers, constant, value)
        return facts(transformers.bert())
    asked: list[int] = []
    make = architectures.pictures
    monkeypatch.setattr(architectures, "_MIXED", 32)
    if name == "resnet50":
        # Its 25 million weights would take more than a second.
        quick = lambda self, x, n: self.rng.random((n, x.shape[1]), np.float32) - 0.5  # noqa: E731
        monkeypatch.setattr(architectures._Network, "_filters", quick)
    monkeypatch.setattr(architectures, "pictures", lambda *of: (asked.extend(of), make(2, 64))[1])
    return {**facts(getattr(architectures, name)()), "pictures": asked}


@pytest.mark.parametrize("name", [n for n in samples.names() if n not in LARGE])
def test_a_shipped_sample_and_its_data_are_those_of_the_file(golden: Golden, name: str) -> None:
    sample = shelf.load(name)
    data = {"calibration": sample.calibration} | ({"task": sample.task.data} if sample.task else {})
    arrays = {f"{k} {n}": spread(a) for k, d in data.items() for n, a in d.arrays.items()}
    if isinstance(sample.task, Task):
        arrays["labels"] = np.bincount(sample.task.labels.ravel()).tolist()
    sources = {k: [len(d), d.source, d.synthetic] for k, d in data.items()}
    found = {"data": {"sources": sources, "arrays": arrays}, "model": facts(sample.model)}
    golden(f"samples/{name}.json", found, **TOLERANCE)


@pytest.mark.parametrize("name", LARGE)
def test_a_small_architecture_is_that_of_the_file(golden: Golden, name: str, monkeypatch) -> None:
    golden(f"samples/{name}_small.json", {"model": small(name, monkeypatch)}, **TOLERANCE)


@pytest.mark.slow(but="csp_detector")
@pytest.mark.parametrize("name", LARGE)
def test_an_architecture_is_that_of_the_file(golden: Golden, name: str) -> None:
    golden(f"samples/{name}.json", {"model": facts(shelf.load(name).model)}, **TOLERANCE)


@pytest.mark.parametrize("nodes", [None, 1, 67])
@pytest.mark.parametrize("name", ["inception_chain", "transformer_stack"])
def test_chains_are_those_of_the_file(golden: Golden, name: str, nodes: int | None) -> None:
    make = getattr(samples, name)
    found = facts(make() if nodes is None else make(nodes=nodes))
    if nodes is None:
        del found["weights"]
    golden(f"samples/{name}_{nodes or 1000}.json", {"model": found}, **TOLERANCE)


def test_random_inputs_are_those_of_the_file(golden: Golden) -> None:
    drawn = {"pictures": architectures.pictures(3, 32), "words": transformers.sentences(3)}
    np.testing.assert_array_equal(drawn["pictures"][:2], architectures.pictures(2, 32))
    np.testing.assert_array_equal(drawn["words"][:2], transformers.sentences(2))
    every = {f"{k} {i}": row for k, v in drawn.items() for i, row in enumerate(v)}
    golden("samples/drawn.json", {"drawn": every}, rel=1e-4, least=1e-3)


@pytest.mark.parametrize(("asked", "count"), [(None, 16), (3, 3)])
def test_what_is_not_trained_has_sixteen_samples(asked: int | None, count: int) -> None:
    tiny = rtlab.testing.tiny_model()
    one = samples._generate(asked, make=lambda: tiny, draw=lambda n: architectures.pictures(n, 8))
    assert [count, 3, 8, 8] == [*one.calibration.arrays["x"].shape]
    assert (True, None, tiny) == (one.calibration.synthetic, one.task, one.model)
    assert one.calibration.source in samples.SOURCES


#: Parameters without running statistics, and multiplications of convolutions and classifier: torchvision's pages of
#: ResNet-50 (25,557,032 and 4.09 G) and MobileNetV2 (3,504,872 and 0.301 G); GoogLeNet of Caffe (6,998,552 and 1.58 G);
#: YOLOv5n of Ultralytics' release 6 for 80 classes, before normalizations are folded (4.5 GFLOP at 640, 0.16 of them
#: at 256); 7,087,872 in each encoder layer of BERT-base, and its embeddings for fewer words.
@pytest.mark.slow(but="csp_detector")
@pytest.mark.parametrize(
    ("name", "parameters", "multiplications"),
    [
        ("googlenet", 6_998_552, 1.58e9), ("resnet50", 25_557_032, 4.09e9), ("mobilenet_v2", 3_504_872, 0.301e9),
        ("csp_detector", 1_872_157, 0.5 * 4.5e9 * 0.16), ("bert", 4 * 7_087_872 + 8_322 * 768, 0),
    ],
)  # fmt: skip
def test_an_architecture_has_the_published_size(name: str, parameters: int, multiplications: float) -> None:
    model = shelf.load(name).model
    weights = {n: [*v.shape.numpy()] for n, v in model.ir.graph.initializers.items()}
    trained = {n: s for n, s in weights.items() if np.prod(s) > 4 and not n.endswith((".mean", ".var"))}
    assert parameters == sum(int(np.prod(s)) for s in trained.values())
    total = 0
    for node in model.nodes:
        if node.op in {"Conv", "Gemm"}:
            places = np.prod(list(model.values[node.outputs[0]].shape[2:]), dtype=int)
            total += int(np.prod(weights[node.inputs[1]])) * int(places)
    assert total == pytest.approx(multiplications, rel=0.05)
