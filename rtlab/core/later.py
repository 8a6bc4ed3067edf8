"""onnx-ir without SymPy, until somebody computes with a symbol.

onnx-ir imports SymPy for arithmetic on symbolic sizes, and that is half of the time in which a small model is loaded in
a new process. While onnx-ir is imported, a stand-in is what it gets; what it does with it then is to take five
functions. An onnx-ir that does anything else is imported anew, as it would be without rtlab.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.util
import sys
import threading
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_LATE, _EARLY = "sympy", "onnx_ir"
#: What onnx-ir puts into a table as it is imported, and calls later.
_FUNCTIONS = {"Max", "Min", "floor", "sqrt", "Mod"}


def install() -> None:
    """Let the next import of onnx-ir be without SymPy, unless one of them is there already."""
    if not {_LATE, _EARLY} & sys.modules.keys():
        sys.meta_path.insert(0, _Finder())


class _Finder(importlib.abc.MetaPathFinder):
    """Finds onnx-ir once, where everybody else finds it."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        del path, target
        if fullname != _EARLY:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None and _LATE not in sys.modules:
            spec.loader = _Loader(spec.loader)
        return spec


class _Loader(importlib.abc.Loader):
    """Runs a module with the stand-in in SymPy's place."""

    def __init__(self, real: Any) -> None:
        self._real = real

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        made: ModuleType | None = self._real.create_module(spec)
        return made

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self._real
        module.__loader__ = self._real
        stand = _StandIn()
        sys.modules[_LATE] = stand
        try:
            self._real.exec_module(module)
        except Exception:  # noqa: BLE001 - whatever this onnx-ir needs, it gets
            stand.end()
            for name in [n for n in sys.modules if n.startswith(f"{_EARLY}.")]:
                del sys.modules[name]
            self._real.exec_module(module)
        finally:
            stand.end()


class _StandIn(ModuleType):
    """SymPy for onnx-ir: functions that are called later, and from then on the real module's own attributes."""

    def __init__(self) -> None:
        super().__init__(_LATE, "Stands for SymPy while onnx-ir is imported.")
        self._thread, self._ended = threading.get_ident(), threading.Event()

    def end(self) -> None:
        """Whoever imports SymPy gets the real one."""
        if sys.modules.get(_LATE) is self:
            del sys.modules[_LATE]
        self._ended.set()

    def __getattr__(self, name: str) -> Any:
        if not self._ended.is_set():
            if threading.get_ident() == self._thread:
                if name in _FUNCTIONS:
                    return _later(name)
                raise AttributeError(name)
            # Another thread that asks for SymPy right now.
            self._ended.wait()
        return getattr(importlib.import_module(_LATE), name)


def _later(name: str) -> Callable[..., Any]:
    def call(*args: Any, **options: Any) -> Any:
        return getattr(importlib.import_module(_LATE), name)(*args, **options)

    call.__name__ = name
    return call
