"""The recorded builds that rtlab brings along, for where a compiler has no wheel.

``sample_models/make_recordings.py`` makes them. A build is found again by the structure of what is to be built
(``Model.structure``), its target, its options and the release; not by its weights and scales, whose last bits differ
from processor to processor. ``recordings/index.json`` lists them, and ``recordings/NAME.xz`` has some, one a line: its
key and what ``readers.build`` writes.
"""

from __future__ import annotations

import functools
import hashlib
import lzma
from collections.abc import Collection, Mapping
from pathlib import Path

import msgspec

from rtlab.backends.readers import build
from rtlab.core.engine import Engine
from rtlab.core.files import find_package_data
from rtlab.core.model import Model
from rtlab.core.protocols import BuildRequest
from rtlab.core.variant import Precision
from rtlab.errors import BuildError, ReadError

#: Of the folder in ``sample_models``, and of the list in it.
FOLDER, INDEX = "recordings", "index.json"
#: Digits of a key.
_KEY = 32
#: Bytes that a file of builds may grow to.
_UNPACKED = 256 << 20


class Index(msgspec.Struct, frozen=True):
    """What is recorded: ``models`` gives releases by structure, ``builds`` the file by the key of a request."""

    schema: int = build.SCHEMA
    models: dict[str, list[str]] = {}
    builds: dict[str, str] = {}

    @property
    def releases(self) -> tuple[str, ...]:
        """All releases, the newest first."""
        versions = {r for releases in self.models.values() for r in releases}
        return tuple(sorted(versions, key=lambda r: [int(n) for n in r.split(".")], reverse=True))


class RecordedRefusal(msgspec.Struct, frozen=True):
    """In the place of a build: the compiler's refusal, which is an answer too."""

    refused: str
    details: str = ""


def compute_key(request: BuildRequest, release: str) -> str:
    """What a build is found by."""
    variant = request.variant
    options = "" if variant.options is None else str(variant.options)
    key_parts = (
        request.model.structure, str(variant.target), release, options,
        str(variant.precision is Precision.TF32), str(bool(variant.sparsity)),
    )  # fmt: skip
    return hashlib.sha256("\0".join(key_parts).encode("utf-8", "surrogatepass")).hexdigest()[:_KEY]


def folder() -> Path:
    """Where they lie, or would."""
    return (find_package_data("sample_models") or Path()) / FOLDER


def shorten_structure(structure: str) -> str:
    """A structure as the list has it."""
    return structure[:16]


@functools.cache
def index() -> Index:
    """What is recorded here; empty where the files are not installed, or are another rtlab's."""
    try:
        recorded_index = msgspec.json.decode((folder() / INDEX).read_bytes(), type=Index)
    except (OSError, msgspec.DecodeError):
        return Index()
    return recorded_index if recorded_index.schema == build.SCHEMA else Index()


def releases(model: Model | None = None) -> tuple[str, ...]:
    """The releases with builds of a model, or with any, the newest first."""
    if model is None:
        return index().releases
    model_releases = index().models.get(shorten_structure(model.structure), ()) if model.nodes else ()
    return tuple(r for r in index().releases if r in model_releases)


def find(request: BuildRequest, release: str) -> Engine | None:
    """The recorded engine of a request; None where nobody recorded it.

    Raises:
        BuildError: the compiler refused it when it was recorded.
        ReadError: the file is damaged.
    """
    build_key = compute_key(request, release)
    file = index().builds.get(build_key)
    if file is None:
        return None
    content = read_builds(file)[build_key]
    if content.startswith(b'{"refused"'):
        refusal = msgspec.json.decode(content, type=RecordedRefusal)
        raise BuildError(refusal.refused, details=refusal.details)
    return build.to_engine(build.decode(content, file))


@functools.lru_cache(2)
def read_builds(name: str) -> Mapping[str, bytes]:
    """The builds of a file by their keys, each as it was written."""
    path = folder() / Path(name).name
    unpacker = lzma.LZMADecompressor(memlimit=_UNPACKED)
    try:
        lines = unpacker.decompress(path.read_bytes(), _UNPACKED).split(b"\n")
        return {one[:_KEY].decode("ascii"): one[_KEY + 1 :] for one in lines}
    except (OSError, ValueError, lzma.LZMAError) as error:
        raise ReadError(
            f'Cannot read the recorded builds in "{path}": {error}. Install rtlab again with pip install '
            '--force-reinstall "rtlab".'
        ) from error


def write(
    files: Mapping[str, Mapping[str, bytes]], models: Mapping[str, list[str]], changed_files: Collection[str]
) -> None:
    """Write recorded builds by file and key, those of the files that changed, and the list of all."""
    folder().mkdir(exist_ok=True)
    file_of_key: dict[str, str] = {}
    for name, builds in sorted(files.items()):
        file = f"{name}.xz"
        file_of_key |= dict.fromkeys(builds, file)
        if name in changed_files:
            filters = [{"id": lzma.FILTER_LZMA2, "preset": 9, "dict_size": 64 << 20}]
            lines = b"\n".join(b"%s %s" % (k.encode("ascii"), content) for k, content in builds.items())
            (folder() / file).write_bytes(lzma.compress(lines, filters=filters))
    new_index = Index(models=dict(sorted(models.items())), builds=dict(sorted(file_of_key.items())))
    (folder() / INDEX).write_bytes(msgspec.json.encode(new_index) + b"\n")
