"""onnx-ir without SymPy until it is needed, each in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import rtlab

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
