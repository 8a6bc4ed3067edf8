"""Optional packages."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.metadata
import importlib.util
import re
from types import ModuleType

from rtlab.errors import Unavailable


@dataclasses.dataclass(frozen=True)
class Optional:
    """An optional package: its distribution, its module, the minimum version, and the argument of pip install."""

    package: str
    module: str
    minimum: str
    install: str

    @property
    def missing(self) -> str:
        """Why it cannot be used here, in words; empty when it can. Nothing is imported."""
        if importlib.util.find_spec(self.module) is None:
            return f'package "{self.package}>={self.minimum}" is not installed'
        try:
            installed_version = importlib.metadata.version(self.package)
        except importlib.metadata.PackageNotFoundError:  # a build of one's own, on the path without metadata
            return ""
        if _numbers(installed_version) < _numbers(self.minimum):
            return f'package "{self.package}" {installed_version} is installed, {self.minimum} or later is needed'
        return ""


#: By the name of the distribution.
PACKAGES = {
    "tensorrt": Optional("tensorrt", "tensorrt", "10.3", '"rtlab[tensorrt]"'),
    "distributed": Optional("distributed", "distributed", "2024.1", '"rtlab[dask]"'),
    "pyarrow": Optional("pyarrow", "pyarrow", "14", '"rtlab[parquet]"'),
    "pillow": Optional("pillow", "PIL", "10", '"pillow>=10"'),
}


def require(package: str, *, why: str) -> ModuleType:
    """Import one of ``PACKAGES``; ``why`` continues "Cannot": ``read pictures``.

    Raises:
        Unavailable: it is not installed, too old, or cannot be imported; the message has the pip command.
    """
    optional, details = PACKAGES[package], ""
    if not (missing := optional.missing):
        try:
            return importlib.import_module(optional.module)
        except Exception as error:  # noqa: BLE001 - a package may raise anything while it is imported
            missing, details = f'package "{package}" cannot be imported ({error})', repr(error)
    raise Unavailable(
        f"Cannot {why}: {missing}. Run pip install --upgrade {optional.install}.", details=details
    )


def _numbers(version: str) -> tuple[int, ...]:
    """The leading numbers of a version: 10.0.0rc1 is 10, 0, 0."""
    return tuple(int(n) for n in re.findall(r"\d+", version.partition("+")[0])[:3])
