"""The one door to compilers and their runtimes: whoever calls one has its module from here.

Children, in which TensorRT's bindings work, are started by ``workers.process`` alone. Polygraphy is a library like
others, and is imported where it does something: CUDA's memory and streams (``workers.execution_context``), the results
that it saved (``readers.measured``). Where it has something that is not used, a line says why: its loaders in
``workers.compiler``, its runner in ``workers.execution_context``, its comparator in
``rtlab/analyses/accuracy/__init__.py``.
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from types import ModuleType


def binding(name: str) -> ModuleType:
    """TensorRT's binding, in a child process, since it may end the one it is in; or a plug-in of ONNX Runtime."""
    return importlib.import_module(name)


def cuda(name: str) -> ModuleType:
    """What reaches the CUDA runtime, which is ``polygraphy.cuda``; in a child process."""
    # The runtime that TensorRT's packages bring lies elsewhere in each release.
    patterns = ("lib/libcudart.so*", "bin/cudart64_*.dll", "bin/*/cudart64_*.dll")
    folders = [
        str(library.parent)
        for entry in filter(None, sys.path)
        for pattern in patterns
        for library in Path(entry).glob(f"nvidia/*/{pattern}")
    ]
    if folders:
        path = "PATH" if sys.platform == "win32" else "LD_LIBRARY_PATH"
        os.environ[path] = os.pathsep.join(dict.fromkeys([*filter(None, [os.environ.get(path)]), *folders]))
    return importlib.import_module(name)


def onnxruntime() -> ModuleType:
    """ONNX Runtime."""
    import onnxruntime as ort

    return ort  # type: ignore[no-any-return,unused-ignore]
