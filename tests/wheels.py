"""Wheels of releases that nobody published, made by hand: what pip installs of them is as real as any."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from pathlib import Path

#: As much of a binding as says that it works.
WORKS = """
__version__ = "{version}"
class ILogger:
    INTERNAL_ERROR = 0
class Logger:
    def __init__(self, least):
        pass
class Builder:
    def __init__(self, logger):
        import tensorrt_rtx_libs
        assert tensorrt_rtx_libs.VERSION == __version__
    def create_builder_config(self):
        return type("IBuilderConfig", (), {{"all_build_routes": ["fuse=0", "fuse=1"]}})()
"""


def release(folder: Path, version: str, *, binding: str = WORKS, libs: bool = True) -> None:
    wheel(
        folder, "tensorrt_rtx_cu13_bindings", version, "tensorrt_rtx_bindings", binding.format(version=version),
    )  # fmt: skip
    if libs:
        wheel(folder, "tensorrt_rtx_cu13_libs", version, "tensorrt_rtx_libs", f'VERSION = "{version}"\n')


def wheel(folder: Path, package: str, version: str, module: str, source: str, *requires: str) -> None:
    """Write a wheel with one module (PEP 427) and what it requires."""
    info = f"{package}-{version}.dist-info"
    files = {
        f"{module}/__init__.py": source,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n"
        + "".join(f"Requires-Dist: {requirement}\n" for requirement in requires),
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: hand\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    rows = [f"{name},sha256={_digest(text)},{len(text.encode())}" for name, text in files.items()]
    files[f"{info}/RECORD"] = "\n".join([*rows, f"{info}/RECORD,,"]) + "\n"
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(folder / f"{package}-{version}-py3-none-any.whl", "w") as file:
        for name, text in files.items():
            file.writestr(name, text)


def _digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
