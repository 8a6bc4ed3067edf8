"""What the TensorRT backends touch exists: in TensorRT 10.16, TensorRT 11.4 and TensorRT-RTX. No GPU is needed."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import tensorrt_api
from fake_gpu import needs_api
from vendor_api import MODULE, Check

LIVE = Path(__file__).parents[2] / "rtlab" / "backends" / "live"
#: Modules that touch a binding, and what a name of theirs always is.
FILES = {"calibrator", "compiler", "inner", "lane", "listening", "loaded", "settings", "timing_cache"}
ROOTS = {
    "trt": MODULE,
    "builder": "Builder",
    "config": "IBuilderConfig",
    "context": "IExecutionContext",
    "engine": "ICudaEngine",
    "network": "INetworkDefinition",
    "parser": "OnnxParser",
    "runtime": "Runtime",
    "source": "OnnxParser",
    "t": "ITensor",
    "tensor": "ITensor",
}
#: Pure virtual in C++, so that the binding calls them and has no method to list.
VIRTUAL = {f"IOutputAllocator.{n}" for n in ("reallocate_output", "reallocate_output_async", "notify_shape")}
#: What is used by a name that is computed, or by the binding itself.
COMPUTED = {"builder_optimization_level", "max_aux_streams", "tiling_optimization_level", "name", "log"} | {
    "Severity",
    "ERROR",
    "WARNING",
}


@needs_api
def test_what_is_touched_exists_in_every_release_it_is_touched_in() -> None:
    """A branch under ``hasattr`` counts for the releases that have the name."""
    apis = {r: tensorrt_api.listing(r) for r in ("trt10", "trt11", "rtx")}
    checks = {f: Check(apis, ROOTS).run((LIVE / f"{f}.py").read_text()) for f in FILES}
    assert [] == [
        f"{f}.py:{p}" for f, c in checks.items() for p in c.problems if not any(v in p for v in VIRTUAL)
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


# The check itself, on a vendor of two releases.

_CONFIG = {
    "level": "property",
    "set": ["set(self: v.Config, flag: v.Flag, on: bool) -> None"],
}
_OLD = {
    "functions": {"start": ["start(logger: v.Logger, space: str) -> bool"]},
    "classes": {
        "Logger": {
            "__init__": ["__init__(self: v.Logger) -> None"],
            "log": ["log(self: v.Logger, what: str) -> None"],
        },
        "Flag": {"enum": ["A", "OLD"]},
        "Builder": {
            "__init__": ["__init__(self: v.Builder, logger: v.Logger) -> None"],
            "config": ["config(self: v.Builder, level: int = 0) -> v.Config"],
        },
        "Config": {**_CONFIG, "legacy": ["legacy(self: v.Config) -> None"]},
        "Legacy": {"__init__": ["__init__(self: v.Legacy) -> None"]},
    },
}
_NEW = {
    "functions": _OLD["functions"],
    "classes": {
        **{k: v for k, v in _OLD["classes"].items() if k != "Legacy"},
        "Flag": {"enum": ["A", "NEW"]},
        "Config": {**_CONFIG, "fresh": ["fresh(self: v.Config) -> None"]},
    },
}


def problems(code: str) -> list[str]:
    return (
        Check({"old": _OLD, "new": _NEW}, {"trt": MODULE, "config": "Config"})
        .run(code.replace("; ", "\n"))
        .problems
    )


@pytest.mark.parametrize(
    "code",
    [
        "trt.Builder(trt.Logger()).config(level=1).level",
        "c = trt.Builder(trt.Logger()).config(); c.set(trt.Flag.A, on=True)",
        "config.set(trt.Flag.OLD if hasattr(trt.Flag, 'OLD') else trt.Flag.NEW, True)",
        "if hasattr(config, 'legacy'): config.legacy()\nelse: config.fresh()",
        "def f():\n if not hasattr(config, 'legacy'): raise ValueError\n config.legacy()",
        "def f(wanted):\n if wanted is None or not hasattr(trt, 'Legacy'): return\n trt.Legacy()",
        "class L(trt.Logger):\n def log(self, what): trt.Logger.__init__(self)",
        "trt.Flag.__members__['x'].name",
        "report.anything(config)",
    ],
)
def test_code_that_fits_both_releases_passes(code: str) -> None:
    assert [] == problems(code)


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("trt.Bilder()", "Bilder is not in new, old"),
        ("trt.Builder(trt.Logger()).confg()", "Builder.confg is not in"),
        ("trt.Flag.OLD", "Flag.OLD is not in new"),
        ("config.legacy()", "Config.legacy is not in new"),
        ("if hasattr(config, 'legacy'): config.fresh()", "Config.fresh is not in old"),
        ("if hasattr(config, 'legasy'): config.level", "is in no listing"),
        ("if hasattr(config, 'legacy'): pass\nconfig.legacy()", "Config.legacy is not in new"),
        ("config.set(trt.Flag.A, state=True)", "does not fit set"),
        ("config.set(trt.Flag.A)", "does not fit set"),
        ("trt.Builder()", "does not fit __init__"),
        ("trt.start(1, 2, 3)", "does not fit start"),
        ("config.lvel = 3", "Config.lvel is not in"),
        ("class L(trt.Logger):\n def lgo(self, what): pass", "Logger.lgo is not in"),
        ("class L(trt.Logger):\n def log(self, what, more): pass", "has other parameters"),
        ("def f():\n def g(): return trt.Flag.NEW\n return g", "Flag.NEW is not in old"),
        ("b = trt.Builder(trt.Logger()); [b.confg() for _ in x]", "Builder.confg is not in"),
        ("getattr(config, 'lvel')", "Config.lvel is not in"),
    ],
)
def test_a_fault_is_seen(code: str, said: str) -> None:
    """Misspelt, missing in one release, or wrongly called."""
    found = problems(code)
    assert found
    assert all(said in one for one in found)
