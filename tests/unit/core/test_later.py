"""onnx-ir without SymPy until it is needed, each in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import onnx_ir
import pytest

import rtlab
from rtlab.core import later

needs_sympy = pytest.mark.skipif(
    not hasattr(onnx_ir._core, "sympy"), reason="this onnx-ir is without SymPy anyway"
)
ROOT = Path(rtlab.__file__).parents[1]
MODEL = ROOT / "sample_models" / "dynamic_shapes.onnx"


def told(code: str, *, path: Path | None = None) -> list[str]:
    """What a new Python prints, a word each."""
    begin = f"import sys; sys.path[:0] = {[str(p) for p in (path, ROOT) if p]!r}\n"
    done = subprocess.run([sys.executable, "-c", begin + code], capture_output=True, text=True, check=False)
    assert "" == done.stderr
    return done.stdout.split()


def test_a_model_with_symbols_is_loaded_without_sympy() -> None:
    """Half of the time of a cold start goes into a package that nobody uses there."""
    code = (
        f"import rtlab; rtlab.load({str(MODEL)!r}); print('sympy' in sys.modules, 'onnx_ir' in sys.modules)"
    )
    assert ["False", "True"] == told(code)


@needs_sympy
def test_whoever_computes_with_a_symbol_gets_the_real_one() -> None:
    """Expressions in names of sizes, and arithmetic on them, are SymPy's."""
    code = """
import rtlab.core.model, onnx_ir
print(str(onnx_ir.SymbolicDim("n") + 1).replace(" ", ""), onnx_ir.SymbolicDim("max(4, 2) * 3").simplify())
import sympy
print(sympy.Max(1, 2), type(sympy).__name__, isinstance(sympy.Symbol("n"), sympy.Expr))
print(onnx_ir.SymbolicDim(sympy.Symbol("k")), onnx_ir.__spec__.loader.__class__.__name__)
"""
    assert ["n+1", "12", "2", "module", "True", "k", "SourceFileLoader"] == told(code)


@needs_sympy
@pytest.mark.parametrize("first", ["sympy", "onnx_ir"])
def test_what_was_imported_before_stays(first: str) -> None:
    """A notebook may have used either long before."""
    code = f"""
import {first}; before = sys.modules["sympy"]
import rtlab; rtlab.load({str(MODEL)!r})
import onnx_ir._core
print(before is sys.modules["sympy"], onnx_ir._core.sympy is before)
"""
    assert ["True", "True"] == told(code)


@pytest.mark.parametrize(
    "line",
    [
        "found = sympy.Integer(3)",
        "found = sympy.sqrt(9)",
        "from sympy import Symbol; found = 3",
        "import sympy.core; found = 3",
        "class Own(sympy.Symbol): found = 3\nfound = Own.found",
        "class Own(sympy.Max): found = 3\nfound = Own.found",
    ],
)
def test_an_onnx_ir_that_needs_more_gets_the_real_one(tmp_path: Path, line: str) -> None:
    """Its next version may use SymPy as it is imported."""
    own = tmp_path / "onnx_ir"
    own.mkdir()
    (own / "__init__.py").write_text("from onnx_ir import inner\nfrom onnx_ir.inner import found\n")
    (own / "inner.py").write_text(f"import sympy\n{line}\n")
    code = """
import rtlab.core, onnx_ir, sympy
print(onnx_ir.found, type(sympy).__name__, onnx_ir.inner.sympy is sympy, sympy.Integer(2))
"""
    assert ["3", "module", "True", "2"] == told(code, path=tmp_path)


def test_another_thread_never_sees_the_stand_in(tmp_path: Path) -> None:
    """It waits for the moment that it takes."""
    own = tmp_path / "onnx_ir"
    own.mkdir()
    (own / "__init__.py").write_text(
        "import sympy, threading\n"
        "seen, ready = [], threading.Event()\n"
        "def other():\n"
        "    import sympy\n"
        "    ready.set()\n"
        "    seen.append(sympy.Integer(2) + 1)\n"
        "thread = threading.Thread(target=other); thread.start(); ready.wait()\n"
    )
    code = "import rtlab.core, onnx_ir; onnx_ir.thread.join(); print(onnx_ir.seen)"
    assert ["[3]"] == told(code, path=tmp_path)


def test_a_broken_onnx_ir_says_what_it_would_say_without_rtlab(tmp_path: Path) -> None:
    """And leaves nothing in the place of SymPy."""
    own = tmp_path / "onnx_ir"
    own.mkdir()
    (own / "__init__.py").write_text("import sympy\nraise RuntimeError('broken')\n")
    code = """
import rtlab.core
try:
    import onnx_ir
except RuntimeError as error:
    print(error)
import sympy
print(sympy.Integer(2))
"""
    assert ["broken", "2"] == told(code, path=tmp_path)


def test_nothing_is_installed_where_both_are_there() -> None:
    before = list(sys.meta_path)
    later.install()
    assert before == sys.meta_path
