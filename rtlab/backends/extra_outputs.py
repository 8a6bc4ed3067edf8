"""Models as ONNX Runtime opens them, with any of their values among the outputs, so that a session returns it.

A small model is handed over as bytes. To write a large one so blocks the interpreter for seconds, and ONNX Runtime
copies it repeatedly; so its weights are written once to a folder that lives as long as the model.
"""

from __future__ import annotations

import contextlib
import tempfile
import threading
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path

import onnx
import onnx_ir as ir

from rtlab.core.external_data import load_body_constants
from rtlab.core.model import Model
from rtlab.core.progress import Silent, check
from rtlab.core.protocols import Progress
from rtlab.errors import RunError

#: Bytes from which a weight lies outside the model that a session reads.
_EXTERNAL = 1024
#: Bytes of weights from which they are written to a file of their own.
LARGE = 16 << 20


def list_value_names(runnable: bytes | Model) -> tuple[str, ...]:
    """Values that the nodes of a model write, those of bodies aside."""
    if isinstance(runnable, Model):
        return tuple(v for n in runnable.top for v in n.outputs if v)
    return tuple(v for n in onnx.load_from_string(runnable).graph.node for v in n.output if v)


@contextlib.contextmanager
def open_session_model(
    runnable: bytes | Model, names: Sequence[str] = (), progress: Progress | None = None
) -> Iterator[bytes | str]:
    """What a session is made of, while it is made: bytes, or the path of a large model.

    Args:
        runnable: A model, or one as bytes.
        names: Values that are outputs besides the model's own.
        progress: Asked between weights that are written whether to stop.

    Raises:
        Cancelled: ``progress`` asked to stop.
        RunError: the model has no value of a name.
        ModelError: its weights cannot be read any more.
    """
    if not isinstance(runnable, Model):
        yield _add_outputs_to_bytes(runnable, names)
    elif count_weight_bytes(runnable) < LARGE:
        yield _add_outputs_to_bytes(_get_model_files(runnable).bytes(runnable), names)
    else:
        with write_external_model(runnable, names, progress) as path:
            yield path


@contextlib.contextmanager
def write_external_model(
    model: Model, names: Sequence[str] = (), progress: Progress | None = None
) -> Iterator[str]:
    """The path of a model with its weights in a file beside it, while a session is made of it.

    A session reads such weights without the copies that it makes of those inside a model. Errors are those of
    ``open_session_model``.
    """
    with _get_model_files(model).file(model, names, progress or Silent()) as path:
        yield str(path)


class _ModelFiles:
    """What is written of one model; many threads may ask for it, and the first one writes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._bytes: bytes | None = None
        self._folder: Path | None = None
        self._graph = onnx.ModelProto()
        self._count = 0

    def bytes(self, model: Model) -> bytes:
        with self._lock:
            if self._bytes is None:
                self._bytes = model.bytes()
            return self._bytes

    @contextlib.contextmanager
    def file(self, model: Model, names: Sequence[str], progress: Progress) -> Iterator[Path]:
        with self._lock:
            if self._folder is None:
                # Not every system can remove a file that a session reads.
                folder = tempfile.TemporaryDirectory(prefix="rtlab-", ignore_cleanup_errors=True)
                weakref.finalize(model, folder.cleanup)
                self._graph = _write_external_weights(model, Path(folder.name), progress)
                self._folder = Path(folder.name)
            graph = _add_outputs(self._graph, names)
            self._count += 1
            path = self._folder / f"model-{self._count}.onnx"
        try:
            path.write_bytes(graph.SerializeToString())
            yield path
        finally:
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)


_MODEL_FILES: weakref.WeakKeyDictionary[Model, _ModelFiles] = weakref.WeakKeyDictionary()
_LOCK = threading.Lock()


def _get_model_files(model: Model) -> _ModelFiles:
    with _LOCK:
        return _MODEL_FILES.setdefault(model, _ModelFiles())


def count_weight_bytes(runnable: bytes | Model) -> int:
    """Bytes of a model's weights; of a model as bytes, all of it."""
    if not isinstance(runnable, Model):
        return len(runnable)
    return sum(t.nbytes for v in runnable.ir.graph.initializers.values() if (t := v.const_value) is not None)


def _write_external_weights(model: Model, folder: Path, progress: Progress) -> onnx.ModelProto:
    """The graph of a model whose weights are written to a folder."""
    # The clone shares the tensors of the model, which stays as it is.
    copy = model.ir.clone()
    load_body_constants(copy)
    large = {
        v: t
        for v in copy.graph.initializers.values()
        if (t := v.const_value) is not None
        and t.dtype != ir.DataType.STRING
        and (t.nbytes >= _EXTERNAL or isinstance(t, ir.ExternalTensor))
    }
    report = lambda *_: check(progress, "writing the model")  # noqa: E731
    external = ir.external_data.convert_tensors_to_external([*large.values()], folder, "weights", report)
    for value, tensor in zip(large, external, strict=True):
        value.const_value = tensor
    return ir.to_proto(copy)


def _add_outputs_to_bytes(data: bytes, names: Sequence[str]) -> bytes:
    return bytes(_add_outputs(onnx.load_from_string(data), names).SerializeToString()) if names else data


def _add_outputs(proto: onnx.ModelProto, names: Sequence[str]) -> onnx.ModelProto:
    """A graph with the named values as additional outputs."""
    extended_proto = onnx.ModelProto()
    extended_proto.CopyFrom(proto)
    value_names = {v.name for v in (*proto.graph.input, *proto.graph.initializer)}
    value_names.update(o for n in proto.graph.node for o in n.output)
    if unknown := [n for n in names if n not in value_names]:
        raise RunError(
            f'Cannot read value "{unknown[0]}": the model has no value of this name. See model.values.'
        )
    output_names = {o.name for o in proto.graph.output}
    for name in dict.fromkeys(n for n in names if n not in output_names):
        extended_proto.graph.output.add(name=name)
    return extended_proto
