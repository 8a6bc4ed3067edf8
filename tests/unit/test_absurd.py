"""Engine files whose numbers cannot be: everything that a result tells is a number that can be, or unknown."""

from __future__ import annotations

import contextlib
import copy
import json
from pathlib import Path
from typing import Any

import pytest

import rtlab
from rtlab import Study
from rtlab.analyses.panel_context import PanelContext
from rtlab.analyses.panels import PANELS, render_panel
from rtlab.errors import RtlabError
from rtlab.relation.footprint import nbytes
from rtlab.web.page.document import build_difference_document, build_variant_document


def tensor(name: str, *shape: int) -> dict[str, Any]:
    return {"Name": name, "Dimensions": list(shape), "Format/Datatype": "Row major linear FP32"}


def weights(count: int) -> dict[str, Any]:
    return {"Type": "Float", "Count": count}


SQUARE = {"PrePadding": [1, 1], "PostPadding": [1, 1], "Stride": [1, 1], "Dilation": [1, 1]}
ENGINE = {
    "Layers": [
        {
            "Name": "conv", "LayerType": "CaskConvolution", "ParameterType": "Convolution",
            "Inputs": [tensor("x", 1, 4, 8, 8)], "Outputs": [tensor("a", 1, 16, 8, 8)],
            "Kernel": [3, 3], "OutMaps": 16, "Groups": 1, "Weights": weights(576), "Bias": weights(16), **SQUARE,
        },
        {
            "Name": "pooled", "LayerType": "ConvActPool", "Inputs": [tensor("a", 1, 16, 8, 8)],
            "Outputs": [tensor("b", 1, 8, 4, 4)], "ConvKernel": [3, 3], "ConvOutMaps": 8, "ConvGroups": 1,
            "ConvWeights": weights(1152), "ConvBias": weights(8), **{f"Conv{k}": v for k, v in SQUARE.items()},
        },
        {
            "Name": "pool", "LayerType": "TiledPooling", "ParameterType": "Pooling", "WindowSize": [2, 2],
            "Inputs": [tensor("b", 1, 8, 4, 4)], "Outputs": [tensor("c", 1, 8, 2, 2)],
        },
        {
            "Name": "product", "LayerType": "gemm", "ParameterType": "MatrixMultiply",
            "Inputs": [tensor("c", 1, 8, 2, 2), tensor("d", 1, 8, 2, 2)], "Outputs": [tensor("y", 1, 8, 2, 2)],
        },
    ],
    "Bindings": ["x", "d", "y"],
}  # fmt: skip


def read(folder: Path, engine: Any) -> Study:
    file = folder / "layers.json"
    file.write_text(json.dumps(engine))
    return rtlab.read(layers=file)


def put(found: Any, value: Any, keys: tuple[str, ...]) -> Any:
    """The same document with every number under these keys replaced."""
    if isinstance(found, dict):
        return {
            k: ([value] * len(v) if isinstance(v, list) else value) if k in keys else put(v, value, keys)
            for k, v in found.items()
        }
    return [put(v, value, keys) for v in found] if isinstance(found, list) else found


FIELDS = {
    "shapes": ("Dimensions",),
    "counts": ("Count",),
    "parameters": tuple(
        f"{p}{k}"
        for p in ("", "Conv")
        for k in ("Kernel", "OutMaps", "Groups", "Stride", "Dilation", "WindowSize")
    ),
    "padding": tuple(f"{p}{k}" for p in ("", "Conv") for k in ("PrePadding", "PostPadding")),
}
TOLD = {
    "table": lambda r, _: r.table(),
    "document": lambda r, s: json.dumps(build_variant_document(r.facts, s.model), allow_nan=False),
    "memory": lambda r, _: r.memory(),
    "memory of four": lambda r, _: r.memory(batch=4),
    "roofline": lambda r, _: r.roofline("A100"),
    "schedule": lambda r, _: r.schedule(),
    "schedule, estimated": lambda r, _: r.schedule("A100"),
    "findings": lambda r, _: r.findings,
    "reformats": lambda r, _: r.reformats(),
    "difference": lambda _, s: json.dumps(
        build_difference_document(s.difference("engine", "engine", gpu="A100"), s.model)
    ),
    **{
        name: lambda r, s, n=name: json.dumps(
            render_panel(n, PanelContext(s.state, r.facts)), allow_nan=False
        )
        for name in PANELS
    },
}


@pytest.mark.parametrize("value", [0, -5, 2**31, 2**62, 2**70, -(2**70), 10**400, 1.5, "8", None, True])
@pytest.mark.parametrize("fields", FIELDS)
def test_a_number_that_cannot_be_is_refused_or_unknown(tmp_path, fields, value) -> None:
    study = read(tmp_path, put(copy.deepcopy(ENGINE), value, FIELDS[fields]))
    for tell in TOLD.values():
        with contextlib.suppress(RtlabError):
            tell(study["engine"], study)


def test_of_numbers_that_can_be_everything_is_told(tmp_path) -> None:
    study = read(tmp_path, ENGINE)
    for tell in TOLD.values():
        tell(study["engine"], study)


def test_what_is_too_large_to_be_is_unknown_and_the_rest_is_told(tmp_path) -> None:
    """Two large dimensions are each a number that files may hold; their product is no size."""
    engine = copy.deepcopy(ENGINE)
    engine["Layers"][0]["Outputs"][0]["Dimensions"] = [2**40, 2**40, 8, 8]
    engine["Layers"][1]["ConvWeights"]["Count"] = 2**61
    table = read(tmp_path, engine)["engine"].table()
    assert [True, False, False, False] == table.output_bytes.isna().tolist()
    assert 4 * 8 * 4 * 4 == table.output_bytes.iloc[1]
    assert 4 * (576 + 16) == table.weight_bytes.iloc[0]
    assert table.weight_bytes.isna().iloc[1]


def test_bytes_are_counted_up_to_what_64_bits_hold() -> None:
    assert 2**63 - 1 == nbytes("int8", (2**63 - 1,))
    assert nbytes("int8", (2**63,)) is None
    assert nbytes("fp32", (2**31, 2**31)) is None
