"""Models as ONNX Runtime opens them, with any of their values among the outputs, so that a session returns it.

A small model is handed over as bytes. To write one of hundreds of megabytes as bytes holds the interpreter for seconds,
in which no thread of the notebook does anything, and ONNX Runtime copies it again and again; so the weights of a large
one are written once, piece by piece, to a folder that lives as long as the model, and every session reads them there.
"""

from __future__ import annotations

import contextlib
import shutil
import threading
import weakref
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path

import onnx
import onnx_ir as ir

from rtlab.core import scratch
from rtlab.core.model import Model
from rtlab.core.outside import gather
from rtlab.errors import RunError

#: Bytes from which a weight lies outside the model that a session reads.
EXTERNAL = 1024
#: Bytes of weights from which they are written to a file of their own.
LARGE = 16 << 20


def names(runnable: bytes | Model) -> tuple[str, ...]:
    """Values that the nodes of a model write, those of bodies aside."""
    if isinstance(runnable, Model):
        return tuple(v for n in runnable.top for v in n.outputs if v)
    return tuple(v for n in onnx.load_from_string(runnable).graph.node for v in n.output if v)


@contextlib.contextmanager
def opened(runnable: bytes | Model, names: Sequence[str] = ()) -> Iterator[bytes | str]:
    """What a session is made of, while it is made: bytes, or the path of a large model.

    Args:
        runnable: A model, or one as bytes.
        names: Values that are outputs besides the model's own.

    Raises:
        RunError: the model has no value of a name.
        ModelError: its weights cannot be read any more.
    """
    if not isinstance(runnable, Model):
        yield _inside(runnable, names) if names else runnable
    elif weight(runnable) < LARGE:
        data = _written(runnable).bytes(runnable)
        yield _inside(data, names) if names else data
    else:
        with outside(runnable, names) as path:
            yield path


def prepare(runnable: bytes | Model) -> None:
    """Write what ``opened`` needs, so that opening takes no longer than a session does."""
    if isinstance(runnable, Model):
        with opened(runnable):
            pass


@contextlib.contextmanager
def outside(model: Model, names: Sequence[str] = ()) -> Iterator[str]:
    """The path of a model with its weights in a file beside it, while a session is made of it.

    A session reads such weights without the copies that it makes of those inside a model. Errors are those of
    ``opened``.
    """
    with _written(model).file(model, names) as path:
        yield str(path)


class _Written:
    """What is written of one model; many threads may ask for it, and the first one writes."""

    def __init__(self, model: Model) -> None:
        self._lock = threading.Lock()
        self._bytes: bytes | None = None
        self._folder: Path | None = None
        self._graph = onnx.ModelProto()
        self._count = 0
        # Empty until something is written; a finalizer must not hold what it waits for.
        self._made: list[Path] = []
        weakref.finalize(model, _remove, self._made)

    def bytes(self, model: Model) -> bytes:
        with self._lock:
            if self._bytes is None:
                self._bytes = model.bytes()
            return self._bytes

    @contextlib.contextmanager
    def file(self, model: Model, names: Sequence[str]) -> Iterator[Path]:
        with self._lock:
            if self._folder is None:
                made = scratch.kept()
                self._made.append(made)
                self._graph = _apart(model, made)
                self._folder = made
            graph = _with_outputs(self._graph, names)
            self._count += 1
            path = self._folder / f"model-{self._count}.onnx"
        try:
            path.write_bytes(graph.SerializeToString())
            yield path
        finally:
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)


_WRITTEN: weakref.WeakKeyDictionary[Model, _Written] = weakref.WeakKeyDictionary()
_LOCK = threading.Lock()


def _written(model: Model) -> _Written:
    with _LOCK:
        found = _WRITTEN.get(model)
        if found is None:
            found = _WRITTEN[model] = _Written(model)
        return found


def _remove(folders: list[Path]) -> None:
    while folders:
        # Not every system can remove a file that a session reads.
        shutil.rmtree(folders.pop(), ignore_errors=True)


def weight(runnable: bytes | Model) -> int:
    """Bytes of a model's weights; of a model as bytes, all of it."""
    if not isinstance(runnable, Model):
        return len(runnable)
    return sum(t.nbytes for v in runnable.ir.graph.initializers.values() if (t := v.const_value) is not None)


def _apart(model: Model, folder: Path) -> onnx.ModelProto:
    """The graph of a model whose weights are written to a folder."""
    # The clone shares the tensors of the model, which stays as it is.
    copy = model.ir.clone()
    gather(copy)
    large = [
        v
        for v in copy.graph.initializers.values()
        if (t := v.const_value) is not None
        and t.dtype != ir.DataType.STRING
        and (t.nbytes >= EXTERNAL or isinstance(t, ir.ExternalTensor))
    ]
    written = ir.external_data.convert_tensors_to_external(
        [v.const_value for v in large if v.const_value is not None], folder, "weights"
    )
    for value, tensor in zip(large, written, strict=True):
        value.const_value = tensor
    return ir.to_proto(copy)


def _inside(data: bytes, names: Sequence[str]) -> bytes:
    return bytes(_with_outputs(onnx.load_from_string(data), names).SerializeToString())


def _with_outputs(proto: onnx.ModelProto, names: Iterable[str]) -> onnx.ModelProto:
    """A graph with the named values as additional outputs."""
    changed = onnx.ModelProto()
    changed.CopyFrom(proto)
    have = {o.name for o in proto.graph.output}
    made = _values(proto)
    for name in names:
        if name not in made:
            raise RunError(
                f'Cannot read value "{name}": the model has no value of this name. See model.values.'
            )
        if name not in have:
            have.add(name)
            changed.graph.output.add(name=name)
    return changed


def _values(proto: onnx.ModelProto) -> Collection[str]:
    made = {o for n in proto.graph.node for o in n.output}
    return made | {i.name for i in (*proto.graph.input, *proto.graph.initializer)}
