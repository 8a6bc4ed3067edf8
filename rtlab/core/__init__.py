"""Nouns and services. Nothing here imports a vendor package."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

#: SymPy, and the one file of onnx-ir that calls it as it is imported: they take two thirds of the time in which a small
#: model is loaded in a new process, and are needed for arithmetic on symbolic sizes only.
_LAZY = {"sympy", "onnx_ir._symbolic_shapes"}


class _LazyFinder(MetaPathFinder):
    """Lets what onnx-ir imports be loaded at its first use."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in _LAZY or "onnx_ir" not in sys.modules:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = importlib.util.LazyLoader(spec.loader)
        return spec


if not {"sympy", "onnx_ir"} & sys.modules.keys():
    sys.meta_path.insert(0, _LazyFinder())
