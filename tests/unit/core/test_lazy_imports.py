"""What onnx-ir imports and rarely needs, in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import rtlab

ROOT = Path(rtlab.__file__).parents[1]


def test_sympy_is_loaded_when_a_symbol_is_computed_with() -> None:
    """Half of the time of a cold start goes into a package that nobody uses there."""
    code = f"""
import sys; sys.path.insert(0, {str(ROOT)!r})
import rtlab; rtlab.load({str(ROOT / "sample_models" / "dynamic_shapes.onnx")!r})
print("onnx_ir" in sys.modules, "sympy.core" in sys.modules)
import onnx_ir; print(onnx_ir.SymbolicDim("max(N, 2)") + 1, "sympy.core" in sys.modules)
import sympy; print(isinstance(sympy.Max(sympy.Symbol("N"), 2), sympy.Max))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ["True", "False", "Max(2,", "N)", "+", "1", "True", "True"] == done.stdout.split()
