"""The one door to compilers and their runtimes: whoever calls one has its module from here.

Children, in which TensorRT's bindings work, are started by ``workers.child`` alone. Polygraphy is a library like
others, and is imported where it does something: CUDA's memory and streams (``workers.execution_context``), TensorRT's
calibrators (``workers.calibrator``), the results that it saved (``readers.results``). Where it has something of the
kind that is not used, a line says why: its loaders in ``workers.compiler``, its runner in
``workers.execution_context``, its comparator in ``rtlab/analyses/accuracy/__init__.py``.
"""

from __future__ import annotations

import importlib
from types import ModuleType


def binding(name: str) -> ModuleType:
    """TensorRT's binding, ``tensorrt`` or ``tensorrt_rtx``; in a child process, since it may end the one it is in."""
    return importlib.import_module(name)


def cuda(name: str) -> ModuleType:
    """What reaches the CUDA runtime, which is ``polygraphy.cuda``; in a child process."""
    return importlib.import_module(name)


def onnxruntime() -> ModuleType:
    """ONNX Runtime."""
    import onnxruntime as ort

    return ort  # type: ignore[no-any-return,unused-ignore]


def plug_in(name: str) -> ModuleType:
    """A package that brings an execution provider to ONNX Runtime."""
    return importlib.import_module(name)
