"""A study as one file: a zip of a document, of the entries of its results (``rtlab.study.store``), and of its model.

Without weights the model is its structure, as a recorded build has it, and samples are known by their digest alone. The
file says where the model lay, seen from the folder of the study, and no other path.
"""

from __future__ import annotations

import dataclasses
import functools
import io
import lzma
import os
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np

from rtlab import samples
from rtlab.analyses.study_state import SampleSelection, StudyState, freeze
from rtlab.backends.readers import build
from rtlab.backends.readers.recognise import STUDY_DOCUMENT
from rtlab.core.data import CalibrationData, DetachedData, SampleStream, hash_samples
from rtlab.core.facts import VariantResult
from rtlab.core.files import check_path, write
from rtlab.core.inputs import FileFingerprint, fingerprint_file, open_input
from rtlab.core.metrics import Metric, get_slice_shapes, make_worst_slice_metric
from rtlab.core.model import Model, load, make_empty_model
from rtlab.core.task import Task
from rtlab.errors import CalibrationError, ModelError, ReadError, RtlabError
from rtlab.study import store
from rtlab.study.records import RecordReader, RecordWriter
from rtlab.study.selection import select_samples

#: Members of the file beside its document, and the folder of its entries.
_ARRAYS, _SAMPLES, _ENTRIES = "study.npz", "samples.npz", "entries/"
#: The model without weights, and with them.
_STRUCTURE, _MODEL = "model.onnx.xz", "model.onnx"
#: Bytes that a file may unpack to, or so many times its size.
_UNPACKED, _PACKED = 1 << 30, 100
#: Fields of a state that are in the document as they are.
_PLAIN = tuple(
    f.name
    for f in dataclasses.fields(StudyState)
    if f.name not in {"model", "data", "task", "results", "all_sample_results", "selection", "saved"}
)


class _DetachedMetric:
    """Stands for a function that counted the scores of a saved study."""

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __call__(self, *_: object) -> Any:
        """Raise ``CalibrationError``: the function is not here."""
        raise CalibrationError(
            f'Cannot score by "{self.__name__}": it is a function of yours, and a saved study has its name alone. '
            "Open the study with the task, rtlab.open(path, task=...)."
        )


def save_study(
    state: StudyState, path: str | Path, *, stride: int, weights: bool, samples: bool | None = None
) -> Path:
    """Write a study as one file: see ``Study.save``, which has the same errors.

    ``stride`` is that of the study's observations; ``samples`` says whether these go along, by default with weights.
    """
    path = check_path(path, "the study")
    # What cannot be written is known before a file is begun.
    with_samples = weights if samples is None else samples
    members = _pack_study(state, path, stride=stride, weights=weights, samples=with_samples)
    return write(path, _zip_members(members), what="the study", model=state.model)


def _zip_members(members: Mapping[str, bytes]) -> Iterator[bytes]:
    """A zip file, piece by piece."""
    pieces = _Pieces()
    with zipfile.ZipFile(pieces, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            # Weights and compressed arrays do not shrink.
            is_text = name.endswith(".json")
            kind = zipfile.ZIP_DEFLATED if is_text else zipfile.ZIP_STORED
            archive.writestr(zipfile.ZipInfo(name), content, kind)
            yield pieces.take()
    yield pieces.take()


class _Pieces(io.RawIOBase):
    """A file that is read as it is written."""

    def __init__(self) -> None:
        super().__init__()
        self._pieces: list[bytes] = []

    def writable(self) -> bool:
        """True."""
        return True

    def write(self, content: Any) -> int:
        """Append bytes."""
        self._pieces.append(bytes(content))
        return len(content)

    def take(self) -> bytes:
        """What was written since the last call."""
        content = b"".join(self._pieces)
        self._pieces.clear()
        return content


def _pack_study(
    state: StudyState, path: Path, *, stride: int, weights: bool, samples: bool
) -> dict[str, bytes]:
    """The members of the file, by name."""
    writer, sample_writer = RecordWriter(), RecordWriter()
    members: dict[str, bytes] = {}
    data = store.describe_data(state.data, state.model)
    make_key = functools.partial(
        store.make_key,
        model=store.hash_model(state.model),
        data=data,
        task=store.hash_task(state.task, state.model),
    )

    def add_entry(result: VariantResult, numbers: tuple[int, ...]) -> str:
        key, parts = make_key(result, scales=state.scales.get(result.name), samples=numbers)
        names = {key, *(f"{key}-{i}" for i in range(2, len(members) + 2))}
        # Two variants of other names may be of the same choice.
        folder = min(
            (n for n in names if f"{_ENTRIES}{n}/{store.DOCUMENT}" not in members), key=lambda n: (len(n), n)
        )
        for name, content in store.encode_entry(result, parts, weights=weights).items():
            members[f"{_ENTRIES}{folder}/{name}"] = content
        return folder

    document = {
        "rtlab_study": store.SCHEMA,
        "rtlab": store.get_release(),
        "saved": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "model": _pack_model(state.model, path, weights=weights),
        "stride": stride,
        "entries": {n: add_entry(r, state.selected_samples) for n, r in state.results.items()},
        "common_engines": [
            n
            for n, r in state.all_sample_results.items()
            if n in state.results and r.engine is state.results[n].engine
        ],
        "all_sample_entries": {n: add_entry(r, ()) for n, r in state.all_sample_results.items()},
        "data": _pack_data(state.data, state.model, sample_writer if samples else None),
        "task": _pack_task(state, writer, sample_writer if samples else None),
        "selected_samples": list(state.selected_samples),
        "state": {name: writer.pack(getattr(state, name)) for name in _PLAIN},
    }
    # An engine that was read without its model has none.
    if state.model.nodes and weights:
        members[_MODEL] = state.model.bytes()
    elif state.model.nodes:
        members[_STRUCTURE] = build.compress_structure(state.model)
    members |= {_ARRAYS: writer.encode_arrays(), _SAMPLES: sample_writer.encode_arrays()}
    # The document comes first: who unpacks the file reads it first.
    return {STUDY_DOCUMENT: store.format_document(document), **members}


def _pack_model(model: Model, path: Path, *, weights: bool) -> dict[str, Any]:
    if weights and model.nodes and model.weightless:
        raise ModelError(
            f'Cannot save the study with its weights: those of model "{model.name}" are not here. Open it with its '
            "model, rtlab.open(path, model=...), or save it without them."
        )
    place = None
    if model.path is not None:
        try:
            place = Path(os.path.relpath(model.path.resolve(), path.resolve().parent)).as_posix()
        except ValueError:
            # Of two drives.
            place = model.path.name
    return {
        "name": model.name,
        "digest": store.hash_model(model),
        "place": place,
        "stamp": model.stamp,
        "beside": dict(model.beside),
        "shapes": RecordWriter().pack(dict(model.shapes)),
        "notes": list(model.notes),
        "declined": model.declined,
    }


def _pack_data(
    data: CalibrationData | None, model: Model, writer: RecordWriter | None
) -> dict[str, Any] | None:
    """Samples; their numbers, where there is a writer, unless they come from a stream."""
    if data is None:
        return None
    document = {"source": data.source, "synthetic": data.synthetic, "count": data.count or len(data)}
    document["digest"] = hash_samples(data, model)
    if writer is not None and not isinstance(data, (SampleStream, DetachedData)):
        document["arrays"] = writer.pack({name: np.asarray(array) for name, array in data.arrays.items()})
    return document


def _pack_task(
    state: StudyState, writer: RecordWriter, sample_writer: RecordWriter | None
) -> dict[str, Any] | None:
    task = state.task
    if task is None:
        return None
    fields = {
        f.name: getattr(task, f.name) for f in dataclasses.fields(task) if f.name not in {"data", "metric"}
    }
    fields["vocabulary"] = tuple(task.vocabulary)
    # That both are one object means that the task is scored on what variants are compared on.
    data = "study" if task.data is state.data else _pack_data(task.data, state.model, sample_writer)
    return {"data": data, "metric": _pack_metric(task.metric, writer), "fields": writer.pack(fields)}


def _pack_metric(metric: Any, writer: RecordWriter) -> Any:
    """A metric by its name, or what it is made of; of a function of the user's what is shown of it."""
    if metric is None or isinstance(metric, str):
        return metric
    if not isinstance(metric, Metric):
        return {"function": getattr(metric, "__name__", "metric")}
    if (shapes := get_slice_shapes(metric)) is not None:
        return {"slices": writer.pack(shapes)}
    fields = {f.name: getattr(metric, f.name) for f in dataclasses.fields(metric) if f.name != "each"}
    return {"fields": writer.pack(fields), "function": metric.name}


def _unpack_metric(document: Any, reader: RecordReader) -> Any:
    if document is None or isinstance(document, str):
        return document
    if "slices" in document:
        return make_worst_slice_metric(reader.unpack(document["slices"]))
    missing = _DetachedMetric(document["function"])
    return Metric(each=missing, **reader.unpack(document["fields"])) if "fields" in document else missing


def open_study(
    path: str | Path,
    *,
    model: Model | str | Path | None = None,
    data: Any = None,
    task: Task | None = None,
    folders: Sequence[Path] | None = None,
) -> tuple[StudyState, int]:
    """The state of a saved study and the stride of its observations: see ``rtlab.open``, which has the same errors.

    ``folders`` are those that its model is looked for in, below too; None for any.
    """
    if not isinstance(path, (str, Path)):
        raise ReadError(f"Cannot open the study {path!r}: it is no path. Name a file that study.save wrote.")
    path = Path(path)
    title = f'the study "{path.name}"'
    try:
        with open_input(path) as file, zipfile.ZipFile(file) as archive:
            size = sum(member.file_size for member in archive.infolist())
            if size > max(_UNPACKED, _PACKED * path.stat().st_size):
                raise ReadError(
                    f"Cannot open {title}: it unpacks to {size / 2**30:.3g} GiB. Save the study again."
                )
            members = _Members(archive, title)
            return _StudyReader(members, path, model=model, data=data, task=task, folders=folders).read()
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:
        raise ReadError(
            f"Cannot open {title}: it is no saved study, or is cut short ({error}). Name a file that study.save wrote, "
            "or take another copy of it."
        ) from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ReadError(f'Cannot open the study "{path}": {reason}. Check the path.') from error


class _Members:
    """The members of a file, read when they are needed."""

    def __init__(self, archive: zipfile.ZipFile, title: str) -> None:
        self._archive, self._names, self.title = archive, set(archive.namelist()), title

    def get(self, name: str) -> bytes | None:
        """The content of a member, None where there is none; raises ``ReadError`` where it is damaged."""
        if name not in self._names:
            return None
        try:
            return self._archive.read(name)
        except (zipfile.BadZipFile, zlib.error, EOFError, OSError) as error:
            raise store.make_damage_error(self.title, f'"{name}": {error}') from error

    def __getitem__(self, name: str) -> bytes:
        content = self.get(name)
        if content is None:
            raise store.make_damage_error(self.title, f'"{name}" is missing')
        return content

    def collect(self, prefix: str) -> dict[str, bytes]:
        """The members of a folder, without its name."""
        return {
            name.removeprefix(prefix): self[name] for name in sorted(self._names) if name.startswith(prefix)
        }


class _StudyReader:
    """Reads one file."""

    def __init__(
        self,
        members: _Members,
        path: Path,
        *,
        model: Model | str | Path | None,
        data: Any,
        task: Task | None,
        folders: Sequence[Path] | None,
    ) -> None:
        self._folders = None if folders is None else [folder.resolve() for folder in folders]
        self._members, self._path, self._title = members, path, members.title
        self._document = store.parse_document(members.get(STUDY_DOCUMENT), "rtlab_study", self._title)
        self._chosen_model, self._chosen_data, self._chosen_task = model, data, task
        #: What to do where numbers of weights are missing.
        self._remedy = ""

    def read(self) -> tuple[StudyState, int]:
        """The state and the stride."""
        try:
            return self._read(), int(self._document["stride"])
        except RtlabError:
            raise
        except (LookupError, ValueError, TypeError, AttributeError, EOFError, lzma.LZMAError) as error:
            raise store.make_damage_error(self._title, f"{type(error).__name__}: {error}") from error

    def _read(self) -> StudyState:
        document = self._document
        model = self._read_model(document["model"])
        reader = RecordReader(self._members[_ARRAYS])
        fields = {
            name: freeze(reader.unpack(content))
            for name, content in document["state"].items()
            if name in _PLAIN
        }
        state = StudyState(model, **fields)
        state = self._add_samples(state, reader)
        tables: dict[str, dict[str, VariantResult]] = {"entries": {}, "all_sample_entries": {}}
        failures = dict(state.failures)
        for table, results in tables.items():
            for name, key in document[table].items():
                source = store.EntrySource(model, state.scales.get(name), state.limits, self._remedy)
                title = f'the result of "{name}" in {self._title}'
                try:
                    files = self._members.collect(f"{_ENTRIES}{key}/")
                    results[name] = dataclasses.replace(store.decode_entry(files, source, title), name=name)
                except ReadError as error:
                    # One that is damaged costs no other.
                    failures[name] = error
        for name in document["common_engines"]:
            if name in tables["entries"] and (full := tables["all_sample_entries"].get(name)) is not None:
                # What was measured of all samples comes back only where it is of the same engine.
                tables["all_sample_entries"][name] = dataclasses.replace(
                    tables["entries"][name], errors=full.errors, score=full.score, stages=full.stages
                )
        return dataclasses.replace(
            state,
            results=freeze(tables["entries"]),
            all_sample_results=freeze(tables["all_sample_entries"]),
            failures=freeze(failures),
            saved=datetime.fromisoformat(document["saved"]),
        )

    def _read_model(self, document: Mapping[str, Any]) -> Model:
        """The model: the one that was named, the one in the file, the one at its old place; else its structure."""
        name, shapes = document["name"], RecordReader().unpack(document["shapes"])
        content, model = self._members.get(_MODEL), None
        if self._chosen_model is not None:
            model = self._load_chosen(document, shapes)
        elif content is not None:
            model = load(content, name=name, shapes=shapes)
        else:
            model = self._find_model(document, shapes)
        structure = self._members.get(_STRUCTURE)
        if model is None and structure is None:
            model = make_empty_model()
        elif model is None:
            model = build.decompress_structure(structure or b"", name, shapes)
            file = Path(document["place"] or "model.onnx").name
            self._remedy += f'Open it with its model, rtlab.open("{self._path.name}", model="{file}").'
            store.detach_weights(model, self._remedy)
        if model.path is None and document["place"]:
            # Its name is shown; by its stamp it is no file that can be read.
            place = Path(Path(document["place"]).name)
            model = dataclasses.replace(model, path=place, stamp=_parse_stamp(document["stamp"]))
        notes, declined = tuple(document["notes"]), dict(document["declined"])
        model = dataclasses.replace(model, notes=notes, declined=declined)
        # It takes the weights to compute.
        if not document["digest"].startswith(store.STRUCTURE):
            vars(model)["digest"] = document["digest"]
        return model

    def _load_chosen(self, document: Mapping[str, Any], shapes: Mapping[str, Any]) -> Model:
        """The model that the user named; raises ``ModelError`` where it is another one."""
        chosen = self._chosen_model
        model = (
            dataclasses.replace(chosen.sized(shapes), name=document["name"])
            if isinstance(chosen, Model)
            else load(chosen, shapes=shapes, name=document["name"])  # type: ignore[arg-type]
        )
        is_structure = document["digest"].startswith(store.STRUCTURE)
        digest = f"{store.STRUCTURE}{model.structure}" if is_structure else model.digest
        if digest != document["digest"]:
            title = chosen.name if isinstance(chosen, Model) else Path(str(chosen)).name
            raise ModelError(
                f'Cannot open {self._title} with model "{title}": it is another model, or has other weights or '
                f"sizes, than the one that was saved: digest {digest[:12]} in place of {document['digest'][:12]}. Name "
                "the file that the study was made with, or leave it out to see what was saved."
            )
        return model

    def _find_model(self, document: Mapping[str, Any], shapes: Mapping[str, Any]) -> Model | None:
        """The model at its old place or beside the study, where its digest is the same."""
        place, home = document["place"], self._path.resolve().parent
        paths = (home / place, home / Path(place).name) if place else ()
        for path in dict.fromkeys(p.resolve() for p in paths):
            if not self._may_read(path):
                continue
            if (model := _load_same(path, document, shapes)) is not None:
                return model
            self._remedy = f'File "{path.name}" is not as it was when the study was saved. '
        is_sample = document["name"] in samples.names() and (
            not place or "sample_models" in Path(place).parts
        )
        model = samples.load(document["name"]).model if is_sample else None
        return model if model is not None and model.digest == document["digest"] else None

    def _may_read(self, path: Path) -> bool:
        """Whether there is a file in a folder that the model may lie in."""
        is_inside = self._folders is None or any(path.is_relative_to(folder) for folder in self._folders)
        return is_inside and path.is_file()

    def _add_samples(self, state: StudyState, reader: RecordReader) -> StudyState:
        """With samples and task, as far as they are here."""
        document, model = self._document, state.model
        sample_reader = RecordReader(self._members[_SAMPLES])
        known: list[CalibrationData] = []
        if self._chosen_data is not None:
            known.append(CalibrationData.of(self._chosen_data, model=model))
            known[0].check(model)
        if self._chosen_task is not None:
            known.append(self._chosen_task.data)
        elif self._chosen_data is None and (name := samples.which(model)):
            sample = samples.load(name)
            known += [sample.calibration, *([sample.task.data] if sample.task else [])]
        unpack_data = functools.partial(_unpack_data, model=model, reader=sample_reader, known=known)
        data = unpack_data(document["data"])
        task = self._unpack_task(reader, data, unpack_data)
        self._check_chosen(data, task)
        state = dataclasses.replace(state, data=data, task=task)
        numbers = document["selected_samples"]
        selection: SampleSelection | None = select_samples(task, data, numbers) if numbers and data else None
        return dataclasses.replace(state, selection=selection)

    def _unpack_task(
        self,
        reader: RecordReader,
        data: CalibrationData | None,
        unpack_data: Callable[[Any], CalibrationData | None],
    ) -> Task | None:
        document = self._document["task"]
        if document is None:
            return self._chosen_task
        task_data = data if document["data"] == "study" else unpack_data(document["data"])
        metric = self._chosen_task.metric if self._chosen_task else _unpack_metric(document["metric"], reader)
        task = object.__new__(Task)
        for name, content in {
            **reader.unpack(document["fields"]),
            "data": task_data,
            "metric": metric,
        }.items():
            # What was checked when it was made is not changed by checking it again.
            object.__setattr__(task, name, content)
        return task

    def _check_chosen(self, data: CalibrationData | None, task: Task | None) -> None:
        """Raise ``CalibrationError`` where what the user named is not what was saved."""
        chosen, labels = self._chosen_task, None if self._chosen_task is None else self._chosen_task.labels
        is_other_data = self._chosen_data is not None and isinstance(data, DetachedData)
        is_other_task = chosen is not None and task is not None and isinstance(task.data, DetachedData)
        if chosen is not None and task is not None and not (chosen.reference and task.reference):
            is_other_task |= not np.array_equal(labels, task.labels)  # type: ignore[arg-type]
        if is_other_data or is_other_task:
            raise CalibrationError(
                f"Cannot open {self._title} with these {'samples' if is_other_data else 'samples and labels'}: they "
                "are not those that it was saved with, which its results rest on. Leave them out, and take others with "
                "study.accuracy.use_samples."
            )


def _load_same(path: Path, document: Mapping[str, Any], shapes: Mapping[str, Any]) -> Model | None:
    """The model of a file; None where it is not the one that a study was saved with."""
    beside = {name: fingerprint_file(path.parent / name) for name in document["beside"]}
    is_same_file = (
        document["stamp"] is not None
        and _parse_stamp(document["stamp"]) == fingerprint_file(path)
        and {name: _parse_stamp(stamp) for name, stamp in document["beside"].items()} == beside
    )
    try:
        weights = not document["digest"].startswith(store.STRUCTURE)
        model = load(path, shapes=shapes, name=document["name"], weights=weights)
        # To read all of a large file takes a while.
        is_same = is_same_file and tuple(document["notes"]) == model.notes
        return model if is_same or store.hash_model(model) == document["digest"] else None
    except ModelError:
        return None


def _parse_stamp(stamp: Any) -> FileFingerprint | None:
    return None if stamp is None else (int(stamp[0]), int(stamp[1]))


def _unpack_data(
    document: Mapping[str, Any] | None, model: Model, reader: RecordReader, known: list[CalibrationData]
) -> CalibrationData | None:
    """Samples: those in the file, those of ``known`` that are the same, or those that can be drawn again.

    Without any of these what is known of them, which raises ``CalibrationError`` where a sample is read.
    """
    if document is None:
        return None
    common = {"source": document["source"], "synthetic": document["synthetic"]}
    if "arrays" in document:
        return CalibrationData(reader.unpack(document["arrays"]), **common)
    digest = document["digest"]
    for data in known:
        if hash_samples(data, model) == digest:
            return data
    drawn = CalibrationData.draw_again(model, document["source"], document["count"])
    if drawn is not None and hash_samples(drawn, model) == digest:
        return drawn
    return DetachedData({}, total=document["count"], digest=digest, **common)
