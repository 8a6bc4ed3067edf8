"""Results on disk: each is one entry under a key, the same in the one file of a saved study and in a folder of many.

An entry has three kinds of files: ``result.json``, a readable document; ``arrays.npz``, the arrays that it refers to;
and graphs of what was compiled, without weights. The key is the digest of all that decides about a result. The document
has its parts, schema, rtlab's release, and the digests of the other files.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import functools
import hashlib
import importlib.metadata
import lzma
import os
import secrets
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import msgspec
import onnx_ir as ir

from rtlab.backends.readers import build
from rtlab.core.data import CalibrationData, hash_samples
from rtlab.core.external_data import DetachedWeight, iter_constants
from rtlab.core.facts import VariantResult
from rtlab.core.model import Model
from rtlab.core.prepared import Emulation, Prepared
from rtlab.core.protocols import Limits
from rtlab.core.scale import Scale
from rtlab.core.task import Task
from rtlab.core.variant import Variant
from rtlab.errors import ModelError, ReadError, RtlabError
from rtlab.study.job import Job, prepare_model
from rtlab.study.records import RecordReader, RecordWriter

#: What this rtlab writes and reads.
SCHEMA = 1
#: Files of an entry: the document, its arrays, and the end of the name of a graph.
DOCUMENT, ARRAYS, _GRAPH = "result.json", "arrays.npz", ".onnx.xz"
#: Folders and files of a store of many results; ``ROW`` is in each entry.
STUDIES, ENTRIES, FAILED, MARK, ROW = "studies", "entries", "failed", "store.json", "row.json"
#: Characters of a key: 128 bits.
_KEY = 32
#: What the digest of a model begins with whose weights are not here.
STRUCTURE = "structure "
#: What to do about a saved study that is damaged.
COPY_REMEDY = "Take another copy of it, or save the study again where it is open."
#: The graph of a result that is the study's own model.
_SOURCE = "source"


@functools.cache
def get_release() -> str:
    """The release of rtlab."""
    return importlib.metadata.version("rtlab")


def hash_task(task: Task | None, model: Model) -> str:
    """The digest of a task: its samples, labels and the name of its metric; empty without one."""
    if task is None:
        return ""
    work = hashlib.sha256(f"{task.name} {task.unit} {hash_samples(task.data, model)} ".encode())
    work.update(f"{task.labels.dtype.str} {task.labels.shape}".encode())
    work.update(task.labels.tobytes())
    return work.hexdigest()


def describe_data(data: CalibrationData | None, model: Model) -> str:
    """The digest of samples; of random ones what they are drawn by, since they need not be there."""
    if data is None:
        return "random"
    return f"{data.source}, {len(data)}" if data.synthetic else hash_samples(data, model)


def hash_model(model: Model) -> str:
    """The digest of a model, external data included; of one whose weights are not here that of its structure."""
    return (
        f"{STRUCTURE}{model.structure}" if model.weightless and "digest" not in vars(model) else model.digest
    )


def make_key(
    result: VariantResult,
    *,
    model: str,
    data: str,
    task: str,
    scales: Mapping[str, Scale] | None = None,
    samples: tuple[int, ...] = (),
) -> tuple[str, dict[str, Any]]:
    """The key of a result, and the parts that it is the digest of.

    Args:
        result: The result.
        model: The digest of the study's model, by ``hash_model``.
        data: The digest of the samples, by ``describe_data``.
        task: The digest of the task, by ``hash_task``.
        scales: Scales that were chosen in place of a calibrator.
        samples: The numbers of the samples that it is of; empty for all.
    """
    engine = result.engine
    scale_text = repr(sorted((scales or {}).items()))
    return plan_key(
        result.variant,
        f"{engine.backend} {engine.version}",
        model=model,
        data=data,
        task=task,
        samples=list(samples),
        scales=hashlib.sha256(scale_text.encode()).hexdigest() if scales else "",
        # Files of another machine follow from nothing that is known here.
        files=hashlib.sha256(build.encode(engine)).hexdigest() if result.recorded else "",
    )


def plan_key(variant: Variant, compiler: str, **parts: Any) -> tuple[str, dict[str, Any]]:
    """The same of a variant before it is built; ``compiler`` is the backend and its release."""
    parts = {"schema": SCHEMA, "variant": variant.id, "compiler": compiler, **parts}
    return hashlib.sha256(msgspec.json.encode(parts, order="sorted")).hexdigest()[:_KEY], parts


def encode_entry(
    result: VariantResult, parts: Mapping[str, Any], *, weights: bool = False
) -> dict[str, bytes]:
    """The files of a result by name.

    Args:
        result: The result.
        parts: Those of its key.
        weights: Whether the serialized engine goes along, which has the weights in it.

    Raises:
        TypeError: something of it can be in no document.
    """
    graphs: dict[int, tuple[str, Model]] = {}
    prepared = result.prepared
    made = prepared.emulated.made if isinstance(prepared.emulated, Emulation) else prepared.emulated
    slots = {"model": prepared.model, "reference": prepared.reference, "emulation": made}
    slot_by_graph = {id(m.ir): slot for slot, m in reversed(slots.items()) if m is not None}

    def pack_model(model: Model | Emulation) -> dict[str, Any]:
        if isinstance(model, Emulation):
            return {"graph": "", "slot": "emulation"}
        if model.ir is result.source.ir:
            return {"graph": _SOURCE, "shapes": writer.pack(dict(model.shapes))}
        name, _ = graphs.setdefault(id(model.ir), (f"graph{len(graphs)}{_GRAPH}", model))
        fields = {n: writer.pack(getattr(model, n)) for n in ("name", "shapes", "notes", "declined")}
        return {"graph": name, "slot": slot_by_graph.get(id(model.ir), ""), **fields}

    writer = RecordWriter(pack_model)
    document = writer.pack(_without_weights(result, weights=weights))
    files = {ARRAYS: writer.encode_arrays()}
    files |= {name: build.compress_structure(model) for name, model in graphs.values()}
    head = {
        "rtlab_result": SCHEMA,
        "rtlab": get_release(),
        "key": dict(parts),
        "digests": {name: hashlib.sha256(content).hexdigest() for name, content in files.items()},
        "result": document,
    }
    return {DOCUMENT: format_document(head), **files}


def format_document(document: Any) -> bytes:
    """JSON that a person can read."""
    return msgspec.json.format(msgspec.json.encode(document), indent=1)


def _without_weights(result: VariantResult, *, weights: bool) -> VariantResult:
    """A result whose engines are without their bytes, unless these go along."""
    if weights:
        return result

    def strip(engine: Any) -> Any:
        runnable = engine.runnable if isinstance(engine.runnable, Model) else None
        return dataclasses.replace(engine, plan=None, runnable=runnable)

    engine = strip(result.engine)
    is_same = result.measured is result.engine
    measured = engine if is_same else result.measured and strip(result.measured)
    return dataclasses.replace(result, engine=engine, measured=measured)


class RemadeModels:
    """What a variant was prepared as, made again from its model, its choice and its scales when it is needed."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._prepared: Prepared | None = None
        self._constants: dict[str, tuple[ir.TensorProtocol, ...]] = {}
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[object, ...]:
        return RemadeModels, (self._job,)

    def prepare(self) -> Prepared:
        """The prepared model; raises ``ModelError`` where it takes the samples too."""
        with self._lock:
            if self._prepared is None:
                if observed := [str(t) for t in self._job.variant.treatments if t.kind != "equalize"]:
                    raise ModelError(
                        f'Cannot make the model of "{self._job.name}" again: {" and ".join(observed)} changed it by '
                        "what was observed on samples. Build it once more, "
                        f'study.run(["{self._job.name}"], again=True).'
                    )
                self._prepared = prepare_model(self._job)
            return self._prepared

    def read(self, slot: str, position: int) -> ir.TensorProtocol:
        """A constant of one of its models, by the position among the constants."""
        if slot not in self._constants:
            model = getattr(self.prepare(), slot)
            self._constants[slot] = tuple(tensor for tensor, _ in iter_constants(model.ir))
        return self._constants[slot][position]

    def emulate(self, _check: Callable[[], object]) -> Model:
        """What the CPU computes."""
        return self.prepare().emulation


@dataclasses.dataclass(frozen=True)
class EntrySource:
    """What an entry is read with.

    ``scales`` are those that were chosen in place of a calibrator; ``remedy`` says what to do about missing weights.
    """

    model: Model
    scales: Mapping[str, Scale] | None = None
    limits: Limits = dataclasses.field(default_factory=Limits)
    remedy: str = "Open it with its model, rtlab.open(path, model=...)."


def decode_entry(files: Mapping[str, bytes], source: EntrySource, title: str) -> VariantResult:
    """The result that an entry's files hold; ``title`` is what to call the entry in errors.

    Graphs have their structure at once. Their numbers are made again from the model, at the first access; without a
    model that has its weights, ``ModelError`` says that they are needed.

    Raises:
        ReadError: a file is missing, cut short or damaged, or of another schema.
    """
    head = read_head(files, title)
    document = head["result"]
    graphs: dict[str, Model] = {}

    def unpack_model(model: Mapping[str, Any]) -> Any:
        if model["graph"] == _SOURCE:
            return _resize(source.model, sizes, reader.unpack(model["shapes"]))
        if not model["graph"]:
            return Emulation(remade.emulate)
        if model["graph"] not in graphs:
            fields = {k: reader.unpack(model[k]) for k in ("name", "shapes", "notes", "declined")}
            graph = build.decompress_structure(files[model["graph"]], fields["name"], fields["shapes"])
            is_here = bool(model["slot"]) and not document["recorded"] and not source.model.weightless
            detach_weights(
                graph, source.remedy, functools.partial(remade.read, model["slot"]) if is_here else None
            )
            graphs[model["graph"]] = dataclasses.replace(
                graph, notes=fields["notes"], declined=fields["declined"]
            )
        return graphs[model["graph"]]

    try:
        reader = RecordReader(files[ARRAYS], unpack_model)
        variant = reader.unpack(document["variant"])
        sizes = dict(variant.sizes)
        job = Job(
            document["name"], variant, source.model.resized(sizes) if sizes else source.model, None, None,
            reader.unpack(document["ranges"]), source.scales, source.limits,
            document["engine"]["backend"], None,
        )  # fmt: skip
        remade = RemadeModels(job)
        result: VariantResult = reader.unpack(document)
    except RtlabError:
        raise
    except (LookupError, ValueError, TypeError, AttributeError, EOFError, lzma.LZMAError, OSError) as error:
        raise make_damage_error(title, f"{type(error).__name__}: {error}") from error
    return result


def read_head(files: Mapping[str, bytes], title: str) -> Mapping[str, Any]:
    """The document of an entry, of which schema, key and the digests of the other files are checked.

    Raises:
        ReadError: a file is missing, cut short or damaged, or of another schema.
    """
    head = parse_document(files.get(DOCUMENT), "rtlab_result", title)
    for name, digest in head.get("digests", {}).items():
        if name not in files:
            raise make_damage_error(title, f'"{name}" is missing')
        if hashlib.sha256(files[name]).hexdigest() != digest:
            raise make_damage_error(title, f'"{name}" is not as it was written')
    return head


def parse_document(content: bytes | None, mark: str, title: str) -> dict[str, Any]:
    """A JSON document of this schema, which stands under ``mark``.

    Raises:
        ReadError: there is none, it is damaged, or of another schema.
    """
    if content is None:
        raise make_damage_error(title, "its document is missing")
    try:
        document = msgspec.json.decode(content)
    except (msgspec.DecodeError, RecursionError) as error:
        raise make_damage_error(title, str(error)) from error
    if not isinstance(document, dict) or mark not in document:
        raise make_damage_error(title, f'"{mark}" is not in its document')
    if (schema := document[mark]) != SCHEMA:
        writer = f", written by rtlab {document['rtlab']}" if document.get("rtlab") else ""
        raise ReadError(
            f"Cannot open {title}: its schema is {schema}{writer}; this rtlab reads schema {SCHEMA}. Open it with the "
            "rtlab that wrote it or a newer one: pip install --upgrade rtlab."
        )
    return document


def is_of_other_schema(content: bytes | None, mark: str) -> bool:
    """Whether a document is whole, and one that another release of rtlab wrote."""
    try:
        document = msgspec.json.decode(content or b"")
    except (msgspec.DecodeError, RecursionError):
        return False
    return isinstance(document, dict) and document.get(mark, SCHEMA) != SCHEMA


def make_damage_error(title: str, problem: str) -> ReadError:
    """The error of a file or an entry that is cut short or damaged."""
    return ReadError(f"Cannot open {title}: it is cut short or damaged ({problem}). {COPY_REMEDY}")


def _resize(model: Model, sizes: Mapping[str, Any], shapes: Mapping[str, Any]) -> Model:
    """The model at these shapes, as one object: its own, those of a variant's sizes, or others."""
    if dict(model.shapes) == dict(shapes):
        return model
    resized = model.resized(sizes) if sizes else model
    return resized if dict(resized.shapes) == dict(shapes) else model.sized(shapes)


def detach_weights(model: Model, remedy: str, read: Callable[[int], ir.TensorProtocol] | None = None) -> None:
    """Let the numbers that a structure lacks be read elsewhere.

    Args:
        model: A model as ``build.decompress_structure`` returns it.
        remedy: What to do about missing numbers.
        read: Returns a constant by its position; None where numbers cannot be had.
    """
    for position, (tensor, replace) in enumerate(tuple(iter_constants(model.ir))):
        if build.is_stripped(tensor):
            replace(DetachedWeight(tensor, functools.partial(read, position) if read else None, remedy))


def write_entry(folder: Path, key: str, files: Mapping[str, bytes], *, replace: bool = False) -> Path:
    """Write an entry into a folder of entries, whole or not at all, and return its folder.

    It is written beside, and renamed when it is complete. One that is there already stays, unless it is to be replaced:
    two processes that compute one key are no error.

    Raises:
        RtlabError: the folder cannot be written to, or its disk is full.
    """
    home, part = folder / key, folder / f".{key}.{secrets.token_hex(4)}"
    if not replace and (home / DOCUMENT).is_file():
        return home
    try:
        part.mkdir(parents=True)
        for name, content in files.items():
            with (part / name).open("xb") as file:
                file.write(content)
        if replace:
            remove_entry(folder, key)
        try:
            part.rename(home)
        except OSError as error:
            # Another process was faster: only complete entries get this name, even if a slow file layer shows none yet.
            if error.errno not in {errno.EEXIST, errno.ENOTEMPTY} and not (home / DOCUMENT).is_file():
                raise
    except OSError as error:
        raise RtlabError(
            f'Cannot write a result to "{folder}": {error.strerror or error}. Free some space, or name a folder '
            "that is yours to write to."
        ) from error
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return home


def remove_entry(folder: Path, key: str) -> None:
    """Remove an entry, where there is one; raises ``OSError``.

    It loses its name first, so that it is never half a result.
    """
    trash = folder / f".{key}.{secrets.token_hex(4)}"
    with contextlib.suppress(FileNotFoundError):
        (folder / key).rename(trash)
        shutil.rmtree(trash)


@contextlib.contextmanager
def watch_entry(home: Path, seconds: float) -> Iterator[Callable[[], bool]]:
    """A context to read an entry in; yields what returns whether all of its files could be seen.

    A complete folder gets its name at once, but a file layer between machines may show its files one after the other,
    for as many seconds as are given; and another process may have replaced or removed it meanwhile.
    """
    before = _identify(home)
    is_complete = before is not None and not _is_arriving(home, seconds)
    yield lambda: is_complete and _identify(home) == before


def _identify(home: Path) -> int | None:
    try:
        return home.stat().st_ino
    except OSError:
        return None


def _is_arriving(home: Path, seconds: float) -> bool:
    """Whether the folder of an entry is younger than that and files are missing in it."""
    try:
        # A file's date is of the clock on the wall.
        if datetime.now(timezone.utc).timestamp() - home.stat().st_mtime > seconds:
            return False
        names = set(os.listdir(home))  # noqa: PTH208 - as names
        required = {DOCUMENT, ARRAYS, ROW}
        if DOCUMENT in names:
            required |= msgspec.json.decode((home / DOCUMENT).read_bytes())["digests"].keys()
    except FileNotFoundError:
        return True
    except (OSError, msgspec.DecodeError, LookupError, TypeError, AttributeError):
        return False
    return not required <= names


def has_only_row(home: Path) -> bool:
    """Whether an entry is the row of a result that is elsewhere, as those of a packed store are."""
    try:
        return os.listdir(home) == [ROW]  # noqa: PTH208 - as names
    except OSError:
        return False


def read_entry(home: Path, source: EntrySource) -> VariantResult:
    """The result in the folder of an entry.

    Raises:
        ReadError: there is none, or a file of it is missing, cut short or damaged, or of another schema.
    """
    title = f'the result "{home}"'
    try:
        files = {path.name: path.read_bytes() for path in home.iterdir() if path.is_file()}
    except OSError as error:
        raise ReadError(f"Cannot open {title}: {error.strerror}. Name the folder of an entry.") from error
    return decode_entry(files, source, title)
