"""Values of a model, batch by batch, from a session of ONNX Runtime in this process."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rtlab.backends import extra_outputs, vendor
from rtlab.backends.cancellable_call import CancellableCaller
from rtlab.backends.workers import inference
from rtlab.backends.workers.inference import SessionSpec
from rtlab.core.arrays import Batch
from rtlab.core.model import Model
from rtlab.core.trace import Outputs
from rtlab.errors import BuildError

#: Operators whose neighbours ONNX Runtime fuses into integer kernels that round otherwise.
_QUANTIZING = {"QuantizeLinear", "DequantizeLinear"}
#: Prefix of ONNX Runtime's settings for the weights of a model that it writes.
_OPTIMIZED = "session.optimized_model_external_initializers"
#: Left out while a model is folded to a file: what it names by itself, it names so again when it reads that file at a
#: higher level, and then refuses two constants of one name (1.31, on a transformer).
_ONCE = ("MatMulAddFusion",)
#: What a session is made of, for as long as it is made.
_Content = Callable[[], contextlib.AbstractContextManager[bytes | str]]


@contextlib.contextmanager
def open_reader(
    model: Model,
    value_names: Sequence[str],
    create_spec: Callable[..., SessionSpec],
    create_caller: Callable[[], CancellableCaller],
) -> Iterator[Callable[[Batch], Outputs]]:
    """A session that returns the ``value_names`` values of a model in the least time and memory.

    ``create_spec`` gives the settings at a level, ``create_caller`` who looks after opening, and then after each batch.

    Raises:
        BuildError: ONNX Runtime refuses the model.
    """
    has_qdq = any(n.op in _QUANTIZING for n in model.nodes)
    opener = create_caller()
    with tempfile.TemporaryDirectory(prefix="rtlab-", ignore_cleanup_errors=True) as folder:
        open_source = functools.partial(extra_outputs.write_external_model, model, value_names)
        folded_path = Path(folder) / "folded.onnx"
        # In one step, ONNX Runtime holds the weights as they are, folded, and in blocks, all at once.
        entries = (
            (f"{_OPTIMIZED}_file_name", "folded.weights"),
            (f"{_OPTIMIZED}_min_size_in_bytes", str(extra_outputs.EXTERNAL)),
        )
        inference.free_memory()
        open_session(
            open_source, create_spec("basic", saved=str(folded_path), entries=entries, without=_ONCE), opener
        )
        inference.free_memory()
        # A plan of memory for all values at once is of no use when most are handed out.
        final_spec = create_spec("basic" if has_qdq else "all", planned=False)
        sessions = [_open_folded(folded_path, open_source, final_spec, opener)]
        inference.free_memory()

        def read(batch: Batch) -> Outputs:
            ort_session, run_options = sessions[0], vendor.onnxruntime().RunOptions()
            return create_caller().call(
                lambda: inference.read(ort_session, value_names, batch, run_options),
                functools.partial(setattr, run_options, "terminate", True),  # noqa: FBT003 - it has no name
            )

        try:
            yield read
        finally:
            # The weights are read from the folder, which not every system can remove before.
            sessions.clear()


def _open_folded(
    folded_path: Path, open_source: _Content, spec: SessionSpec, caller: CancellableCaller
) -> Any:
    """A session on the folded model; where ONNX Runtime refuses what it wrote, on the model as it is."""
    with contextlib.suppress(BuildError):
        return open_session(lambda: contextlib.nullcontext(str(folded_path)), spec, caller)
    return open_session(open_source, spec, caller)


def open_session(open_source: _Content, spec: SessionSpec, caller: CancellableCaller) -> Any:
    """A session in this process on what ``open_source`` yields; errors as ``inference.open_session``."""
    options = inference.create_session_options(spec)

    def create() -> Any:
        # Weights are written in this thread too, which takes a while where there are many.
        with open_source() as data:
            return inference.create_session(dataclasses.replace(spec, data=data), options)

    return caller.call(
        create,
        functools.partial(options.set_load_cancellation_flag, True),  # noqa: FBT003 - it has no name
    )
