"""What the TensorRT backends touch exists: in TensorRT 10.16, TensorRT 11.4 and TensorRT-RTX 1.7.

No GPU is needed for this, and none of the three must be installed.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from vendor_api import MODULE, PLAIN, Declared, Report, check, instance, load

PACKAGE = Path(__file__).parents[2] / "rtlab"
LISTS = PACKAGE.parents[1] / "shared" / "reference" / "api"
needs_lists = pytest.mark.skipif(not LISTS.is_dir(), reason=f"the API lists are not at {LISTS}")

_BUILDING = {
    "trt": MODULE,
    "builder": instance("Builder"),
    "network": instance("INetworkDefinition"),
    "config": instance("IBuilderConfig"),
    "parser": instance("OnnxParser"),
    "parser_logger": instance("ILogger"),
}
_RUNNING = {"trt": MODULE, "engine": instance("ICudaEngine"), "context": instance("IExecutionContext")}
_OPEN = {
    "trt": MODULE,
    "runtime": instance("Runtime"),
    "engine": instance("ICudaEngine"),
    "logger": instance("ILogger"),
    "context": instance("IExecutionContext"),
    **dict.fromkeys(("cuda", "order", "stream", "_allocator"), PLAIN),
}
_LISTENING = {"message_logger": instance("ILogger"), "progress_monitor": instance("IProgressMonitor")}
#: What the code does not say of itself, file by file. A parameter without a type that stands nowhere here is a problem.
DECLARED = {
    "backends/live/compiler.py": Declared(
        names=_BUILDING | dict.fromkeys(("proto", "items", "report", "log", "severity"), PLAIN),
        returns={**_LISTENING, "attach": PLAIN},
    ),
    "backends/live/listening.py": Declared(names=_BUILDING | dict.fromkeys(("report", "severity"), PLAIN)),
    "backends/live/settings.py": Declared(names=_BUILDING, properties={"ITensor.shape": ("list", PLAIN)}),
    "backends/live/timing_cache.py": Declared(
        names=_BUILDING | dict.fromkeys(("report", "severity"), PLAIN),
        returns=_LISTENING,
        properties=dict.fromkeys(("TimingCacheValue.tacticHash", "TimingCacheValue.timingMSec"), PLAIN),
    ),
    "backends/live/calibrator.py": Declared(names=_BUILDING | dict.fromkeys(("report", "calibrator"), PLAIN)),
    "backends/live/loaded.py": Declared(
        names=_RUNNING | dict.fromkeys(("report", "cuda", "severity"), PLAIN),
        fields=_OPEN,
        returns=_LISTENING | dict.fromkeys(("_profiler", "listen"), PLAIN),
        properties={"ICudaEngine.profiling_verbosity": instance("ProfilingVerbosity")},
    ),
    "backends/live/inner.py": Declared(
        names=_RUNNING
        | dict.fromkeys(("listener", "pointer"), PLAIN)
        # What the binding calls back with.
        | dict.fromkeys(("addr", "location", "shape"), PLAIN),
        fields=_OPEN,
        returns={"_listener": PLAIN},
    ),
    "backends/live/lane.py": Declared(
        names=_RUNNING | dict.fromkeys(("memory", "shape", "stream"), PLAIN),
        fields=_OPEN,
        returns={"_allocator": PLAIN},
        # Pure virtual in C++, so the binding calls them and has no method to list.
        virtual={
            "IOutputAllocator.reallocate_output",
            "IOutputAllocator.reallocate_output_async",
            "IOutputAllocator.notify_shape",
        },
    ),
}


def checked(file: str) -> Report:
    return check((PACKAGE / file).read_text(), file, load(LISTS), DECLARED[file])


@needs_lists
@pytest.mark.parametrize("file", DECLARED)
def test_what_is_touched_exists_in_every_release_it_is_touched_in(file: str):
    """A branch under ``hasattr`` counts for the releases that have the name."""
    report = checked(file)
    assert [] == report.problems
    assert len(report.used) > 5


@needs_lists
def test_the_check_sees_what_the_backends_do():
    """A check that follows nothing finds nothing."""
    used = set().union(*(checked(file).used for file in DECLARED))
    assert {
        "Builder.build_serialized_network",
        "IBuilderConfig.set_timing_cache",
        "IOptimizationProfile.set_shape_input",
        "IInt8LegacyCalibrator",
        "ITensor.is_shape_tensor",
        "ParserError.node_operator",
        "Runtime.deserialize_cuda_engine",
        "IExecutionContext.execute_async_v3",
        "EngineInspector.get_engine_information",
        "IProfiler.report_layer_time",
    } <= used


def test_no_other_module_touches_a_binding():
    """Who adds one adds it to the table."""
    touching = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            name = getattr(node, "id", getattr(node, "arg", getattr(node, "attr", "")))
            module = (
                [a.name for a in node.names]
                if isinstance(node, ast.Import)
                else [node.module or ""]
                if isinstance(node, ast.ImportFrom)
                else []
            )
            if name == "trt" or any(m.partition(".")[0] in {"tensorrt", "tensorrt_rtx"} for m in module):
                touching.add(path.relative_to(PACKAGE).as_posix())
    assert set(DECLARED) == touching


# The check itself, on a vendor of two releases.

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
            "all": ["all(self: v.Builder) -> list[v.Config]"],
        },
        "Config": {
            "level": "property",
            "set": ["set(self: v.Config, flag: v.Flag, on: bool) -> None"],
            "legacy": ["legacy(self: v.Config) -> None"],
        },
        "Legacy": {"use": ["use(self: v.Legacy) -> None"]},
    },
}
_NEW = {
    "functions": _OLD["functions"],
    "classes": {
        **{k: v for k, v in _OLD["classes"].items() if k != "Legacy"},
        "Flag": {"enum": ["A", "NEW"]},
        "Config": {k: v for k, v in _OLD["classes"]["Config"].items() if k != "legacy"}
        | {"fresh": ["fresh(self: v.Config) -> None"]},
    },
}


def problems(code: str) -> list[str]:
    declared = Declared(names={"trt": MODULE, "config": instance("Config"), "report": PLAIN})
    return check(code, "x.py", {"old": _OLD, "new": _NEW}, declared).problems


@pytest.mark.parametrize(
    "code",
    [
        "def f(trt): return trt.Builder(trt.Logger()).config(level=1).level",
        "def f(trt):\n for c in trt.Builder(trt.Logger()).all(): c.set(trt.Flag.A, on=True)",
        "def f(trt, config): config.set(trt.Flag.OLD if hasattr(trt.Flag, 'OLD') else trt.Flag.NEW, True)",
        "def f(config):\n if hasattr(config, 'legacy'): config.legacy()\n else: config.fresh()",
        "def f(config):\n if not hasattr(config, 'legacy'): raise ValueError\n config.legacy()",
        "def f(trt, wanted):\n if wanted is None or not hasattr(trt, 'Legacy'): return\n trt.Legacy().use()".replace(
            "wanted)", "wanted: int)"
        ),
        "def f(trt):\n class L(trt.Logger):\n  def log(self, what): pass\n return L()",
        "def f(trt): return trt.Flag.__members__['x'].name",
        "def f(config, report): report.anything(config)",
        "def f(config):\n config.level = 3",
    ],
)
def test_code_that_fits_both_releases_passes(code: str):
    """Guards may be spelled as one spells them."""
    assert [] == problems(code)


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("def f(trt): trt.Bilder()", '"Bilder" is not in'),
        ("def f(trt): trt.Builder(trt.Logger()).confg()", '"Builder.confg" is not in'),
        ("def f(trt): trt.Flag.OLD", '"Flag.OLD" is not in new'),
        ("def f(config): config.legacy()", '"Config.legacy" is not in new'),
        ("def f(config):\n if hasattr(config, 'legacy'): config.fresh()", '"Config.fresh" is not in old'),
        ("def f(config):\n if hasattr(config, 'legasy'): config.level", "is in no list"),
        (
            "def f(config):\n if hasattr(config, 'legacy'): pass\n config.legacy()",
            '"Config.legacy" is not in new',
        ),
        ("def f(trt, config): config.set(trt.Flag.A, state=True)", "does not fit Config.set"),
        ("def f(trt, config): config.set(trt.Flag.A)", "does not fit Config.set"),
        ("def f(trt): trt.Builder()", "does not fit Builder.__init__"),
        ("def f(trt): trt.start(1, 2, 3)", "does not fit .start"),
        ("def f(config):\n config.lvel = 3", '"Config.lvel" is not in'),
        ("def f(config): config.level.deep", "whose class is not told"),
        ("def f(other): other.anything()", 'parameter "other" of f is not declared'),
        ("def f(trt):\n class L(trt.Logger):\n  def lgo(self, what): pass", '"Logger.lgo" is not in'),
        ("def f(trt):\n class L(trt.Logger):\n  def log(self, what, more): pass", "has other parameters"),
        ("def f(trt):\n def g(): return trt.Flag.NEW\n return g", '"Flag.NEW" is not in old'),
        ("def f(trt): return [c.lvel for c in trt.Builder(trt.Logger()).all()]", '"Config.lvel" is not in'),
        (
            "def g(trt) -> Any: return trt.Builder(trt.Logger())\ndef f(trt): g(trt).confg()",
            "whose class is not told",
        ),
        ("def f(config): getattr(config, 'lvel')", '"Config.lvel" is not in'),
    ],
)
def test_a_fault_is_found(code: str, said: str):
    """Misspelt, missing in one release, wrongly called, or not to be followed."""
    found = problems(code)
    assert found
    assert all(said in one for one in found)
