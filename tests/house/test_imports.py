"""Who imports whom, and what an import costs."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import grimp
import importlinter.api
import networkx
import pytest

import rtlab

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "rtlab").rglob("*.py"))

#: Packages that only some rows may import, and whether only inside functions.
CONFINED = {
    "tensorrt": ({"backends"}, True),
    "tensorrt_rtx": ({"backends"}, True),
    "onnxruntime": ({"backends"}, True),
    # A data loader of Polygraphy is one of the sources of data, which are core.
    "polygraphy": ({"backends", "core"}, True),
    # The bar that long work shows below a cell.
    "ipywidgets": ({"web", "study"}, False),
    "anywidget": ({"web"}, False),
    "plotly": ({"web", "api.py", "stores.py"}, False),
    "dask": (set(), True),
    "distributed": (set(), True),
}


def imports(node: ast.AST, *, inside: bool = False) -> Iterator[tuple[str, bool, int]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from ((alias.name.split(".")[0], inside, child.lineno) for alias in child.names)
        elif isinstance(child, ast.ImportFrom) and child.level == 0:
            yield (child.module or "").split(".")[0], inside, child.lineno
        deeper = inside or isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef))
        yield from imports(child, inside=deeper)


def python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_rows_of_the_house_hold():
    linter = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([linter, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_package_has_a_place_and_imports_for_types_alone_count():
    """A type that is only named pulls nothing in, and yet its file has to be known to read this one."""
    read = importlinter.api.read_configuration(str(ROOT / "pyproject.toml"))
    layers = next(c for c in read["contracts_options"] if c["type"] == "layers")
    assert ("True", ["rtlab"]) == (layers["exhaustive"], layers["containers"])
    assert "False" == read["session_options"]["exclude_type_checking_imports"]


def test_no_file_needs_itself() -> None:
    """Files in a circle cannot be read, tested or changed alone; what is imported in a function counts too."""
    graph = grimp.build_graph("rtlab", exclude_type_checking_imports=False, cache_dir=None)
    imports = networkx.DiGraph(
        (module, other)
        for module in graph.modules
        for other in graph.find_modules_directly_imported_by(module)
    )
    assert [] == [sorted(c) for c in networkx.strongly_connected_components(imports) if len(c) > 1]


def test_experiments_are_handed_what_builds_and_runs() -> None:
    """One that looks for itself cannot be tried with another runner, nor kept to a budget."""
    here = {"rtlab.backends.reference", "rtlab.backends.bench", "rtlab.backends.selection"}
    graph = grimp.build_graph("rtlab", exclude_type_checking_imports=False, cache_dir=None)
    found = {
        module: sorted(here & graph.find_modules_directly_imported_by(module))
        for module in graph.find_descendants("rtlab.experiments")
    }
    assert {} == {module: others for module, others in found.items() if others}


#: Files that import a package by a name which is their datum: the binding of a backend, a plug-in of ONNX Runtime's;
#: and ``core.optional``, which says in words which package is missing.
NAMED = {"backends/vendor.py", "core/optional.py"}
IMPORTING = {"importlib.import_module", "import_module", "__import__"}


def test_nothing_of_rtlab_is_imported_by_a_string() -> None:
    """What a computed name imports is unseen by mypy, by the contract of the rows, and by whoever reads."""
    found = {
        str(path.relative_to(ROOT / "rtlab"))
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in IMPORTING
    }
    assert NAMED == found


def test_confined_packages_are_imported_where_they_belong():
    """A vendor import at module level makes rtlab unusable where that package is not installed."""
    wrong = []
    for path in SOURCES:
        row = path.relative_to(ROOT / "rtlab").parts[0]
        for package, inside, line in imports(ast.parse(path.read_text(encoding="utf-8"))):
            rows, only_inside = CONFINED.get(package, ({row}, False))
            if row not in rows or (only_inside and not inside):
                wrong.append(f"{path.relative_to(ROOT)}:{line} imports {package}")
    assert [] == wrong


def test_importing_rtlab_imports_no_heavy_package():
    code = "import json, sys, rtlab; print(json.dumps(sorted({m.split('.')[0] for m in sys.modules})))"
    heavy = {
        "onnxruntime", "tensorrt", "tensorrt_rtx", "plotly", "ipywidgets", "anywidget", "pandas", "IPython",
    }  # fmt: skip
    assert set() == heavy & set(json.loads(python(code)))


@pytest.mark.parametrize(
    ("code", "later"),
    [
        # The arguments are parsed, and help and errors printed, before anything is known of a model.
        ("import rtlab.cli", {"rtlab.core.model", "rtlab.analyses", "onnx", "scipy", "pandas"}),
        # Every build waits for a process that imports this.
        ("import rtlab.backends.workers.compiler", {"numpy", "onnx", "importlib.metadata"}),
        # What one call alone needs comes with that call: files of engines, searches, the report.
        (
            "import rtlab; rtlab.Study",
            {
                "rtlab.backends.readers.messages", "rtlab.backends.readers.log", "rtlab.experiments.why",
                "rtlab.experiments.sensitivity", "rtlab.experiments.tuning", "rtlab.gradients", "rtlab.web.report",
                "rtlab.web.explorer", "scipy", "pandas",
            },
        ),
    ],
)  # fmt: skip
def test_what_one_call_needs_is_imported_by_that_call(code: str, later: set[str]) -> None:
    assert set() == later & set(
        json.loads(python(f"import json, sys; {code}; print(json.dumps([*sys.modules]))"))
    )


@pytest.mark.parametrize("absent", [("tensorrt", "tensorrt_rtx"), ("dask", "distributed", "sklearn")])
def test_every_module_imports_without_optional_packages(absent):
    code = f"""
import importlib, pkgutil, sys
for name in {absent!r}:
    sys.modules[name] = None  # makes the import of it fail
import rtlab
names = [m.name for m in pkgutil.walk_packages(rtlab.__path__, "rtlab.") if not m.name.endswith("__main__")]
for name in names:
    importlib.import_module(name)
print(len(names))
"""
    modules = [p for p in SOURCES if p.name not in {"__init__.py", "__main__.py"}]
    assert int(python(code)) >= len(modules)


def test_a_model_is_prepared_for_a_gpu_on_a_machine_without_tensorrt(tmp_path):
    """On a Mac the prepared model and the command are the result; what builds them stands elsewhere."""
    code = f"""
import importlib.util
known = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name.startswith("tensorrt") else known(name, *rest)
import rtlab
assert not rtlab.available()["tensorrt-rtx"].ok
study = rtlab.Study(rtlab.testing.tiny_model())
study.calibration.prepare("elsewhere", precision="fp4", target="sm120")
print(study.export("elsewhere", {str(tmp_path / "out.onnx")!r}).model)
"""
    assert str(tmp_path / "out.onnx") == python(code).strip()


def test_installed_rtlab_is_this_checkout():
    """Child processes import rtlab too; they must run the code under test."""
    where = Path(python("import rtlab; print(rtlab.__file__)").strip())
    assert Path(rtlab.__file__).resolve() == where.resolve()
