"""What the TensorRT backends touch exists: in TensorRT 10.16, TensorRT 11.4 and TensorRT-RTX. No GPU is needed."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest

import tensorrt_api
from fake_gpu import needs_api
from vendor_api import MODULE, Check

LIVE = Path(__file__).parents[2] / "rtlab" / "backends" / "workers"
#: Modules that touch a binding, and what a name of theirs always is.
FILES = {"compiler", "execution_context", "loaded"}
ROOTS = {
    "trt": MODULE, "builder": "Builder", "config": "IBuilderConfig", "context": "IExecutionContext",
    "engine": "ICudaEngine", "network": "INetworkDefinition", "parser": "OnnxParser", "runtime": "Runtime",
    "source": "OnnxParser", "t": "ITensor", "tensor": "ITensor",
}  # fmt: skip
#: Pure virtual in C++, so that the binding calls them and has no method to list.
VIRTUAL = {f"IOutputAllocator.{n}" for n in ("reallocate_output", "reallocate_output_async", "notify_shape")}
#: A layer of the network becomes one of its own class by assignment, and has its members only then.
RECLASSED = {"ILayer.__class__", "ILayer.attention"}
#: What is used by a name that is computed, or by the binding itself.
COMPUTED = {
    "builder_optimization_level", "max_aux_streams", "tiling_optimization_level", "name", "log", "Severity", "ERROR",
    "WARNING",
}  # fmt: skip


def listings() -> dict[str, Any]:
    return {r: tensorrt_api.listing(r) for r in ("trt10", "trt11", "rtx")}


@needs_api
def test_what_is_touched_exists_in_every_release_it_is_touched_in() -> None:
    checks = {f: Check(listings(), ROOTS).run((LIVE / f"{f}.py").read_text()) for f in FILES}
    assert [] == [
        f"{f}.py:{p}"
        for f, c in checks.items()
        for p in c.problems
        if not any(v in p for v in VIRTUAL | RECLASSED)
    ]
    # The check sees all that is listed by hand, and no more is listed.
    used = set().union(*(c.used for c in checks.values()))
    listed = {f"{c}.{m}" for c, ms in tensorrt_api.BOTH.items() if c != "Logger" for m in ms.split()}
    assert [] == sorted(m for m in listed - used if m.partition(".")[2] not in COMPUTED)


def test_no_other_module_touches_a_binding() -> None:
    touching = set()
    for path in LIVE.parents[1].rglob("*.py"):
        text = path.read_text()
        if not re.search(r"\btrt\b|^ *(import|from) tensorrt(_rtx)?\b", text, re.MULTILINE):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                module = ast.unparse(node).split()[1].partition(".")[0]
                touching |= {path} if module in {"tensorrt", "tensorrt_rtx"} else set()
            if "trt" in (getattr(node, f, None) for f in ("id", "arg", "attr")):
                touching.add(path)
    assert {LIVE / f"{f}.py" for f in FILES} == touching


def problems(code: str) -> list[str]:
    return Check(listings(), ROOTS).run(code).problems


@needs_api
@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("trt.Bilder()", "Bilder is not in rtx, trt10, trt11"),
        ("b = trt.Builder(trt.Logger())\n[b.confg() for _ in x]", "Builder.confg is not in"),
        ("trt.BuilderFlag.INT8", "INT8 is not in rtx, trt11"),
        ("def f():\n def g(): return trt.BuilderFlag.INT8\n return g", "INT8 is not in rtx, trt11"),
        ("config.int8_calibrator = 1", "int8_calibrator is not in rtx, trt11"),
        ("if hasattr(config, 'int8_calibrator'): config.all_build_routes", "is not in trt10"),
        ("if hasattr(config, 'int8_calibratr'): config.set_flag", "is in no listing"),
        ("if hasattr(config, 'int8_calibrator'): pass\nconfig.int8_calibrator", "is not in rtx, trt11"),
        ("if not hasattr(config, 'set_flag'): config.set_flg()", "set_flg is not in rtx, trt10"),
        ("getattr(config, 'lvel')", "IBuilderConfig.lvel is not in"),
        ("config.set_flag(flags=1)", "does not fit set_flag"),
        ("config.set_flag()", "does not fit set_flag"),
        ("trt.Builder()", "does not fit __init__"),
        ("trt.init_libnvinfer_plugins(1, 2, 3)", "does not fit init_libnvinfer_plugins"),
        ("class L(trt.ILogger):\n def lgo(self, severity, msg): pass", "ILogger.lgo is not in"),
        ("class L(trt.ILogger):\n def log(self, msg): pass", "has other parameters"),
    ],
)
def test_a_fault_is_seen(code: str, said: str) -> None:
    found = problems(code)
    assert found
    assert all(said in one for one in found)
