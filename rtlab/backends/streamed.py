"""Values of a model, batch by batch, from a session of ONNX Runtime in this process."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rtlab.backends import exposed, vendor
from rtlab.backends.attending import Attendant
from rtlab.backends.live import inference
from rtlab.backends.live.inference import SessionOrder
from rtlab.core import scratch
from rtlab.core.arrays import Batch
from rtlab.core.model import Model
from rtlab.core.protocols import Progress
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
def reading(
    model: Model,
    wanted: Sequence[str],
    order: Callable[..., SessionOrder],
    attendant: Callable[[], Attendant],
) -> Iterator[Callable[[Batch], Outputs]]:
    """A session that returns the ``wanted`` values of a model in the least time and memory.

    ``order`` gives the settings at a level, ``attendant`` who looks after opening, and then after each batch.

    Raises:
        BuildError: ONNX Runtime refuses the model.
    """
    quantized = any(n.op in _QUANTIZING for n in model.nodes)
    opening = attendant()
    with scratch.folder() as folder:
        written = functools.partial(exposed.outside, model, wanted)
        folded = Path(folder) / "folded.onnx"
        # In one step, ONNX Runtime holds the weights as they are, folded, and in blocks, all at once.
        entries = (
            (f"{_OPTIMIZED}_file_name", "folded.weights"),
            (f"{_OPTIMIZED}_min_size_in_bytes", str(exposed.EXTERNAL)),
        )
        inference.free_memory()
        session(written, order("basic", saved=str(folded), entries=entries, without=_ONCE), opening)
        inference.free_memory()
        # A plan of memory for all values at once is of no use when most are handed out.
        last = order("basic" if quantized else "all", planned=False)
        kept = [_folded(folded, written, last, opening)]
        inference.free_memory()

        def read(batch: Batch) -> Outputs:
            opened, told = kept[0], vendor.onnxruntime().RunOptions()
            return attendant().do(
                lambda _: inference.read(opened, wanted, batch, told),
                functools.partial(setattr, told, "terminate", True),  # noqa: FBT003 - it has no name
            )

        try:
            yield read
        finally:
            # The weights are read from the folder, which not every system can remove before.
            kept.clear()


def _folded(folded: Path, written: _Content, order: SessionOrder, attendant: Attendant) -> Any:
    """A session on the folded model; where ONNX Runtime refuses what it wrote, on the model as it is."""
    with contextlib.suppress(BuildError):
        return session(lambda: contextlib.nullcontext(str(folded)), order, attendant)
    return session(written, order, attendant)


def session(source: _Content, order: SessionOrder, attendant: Attendant) -> Any:
    """A session in this process, of what ``source`` gives meanwhile; errors are those of ``inference.session``."""
    options = inference.settings(order)

    def made(_: Progress) -> Any:
        # Weights are written in this thread too, which takes a while where there are many.
        with source() as data:
            return inference.session(dataclasses.replace(order, data=data), options)

    return attendant.do(
        made,
        functools.partial(options.set_load_cancellation_flag, True),  # noqa: FBT003 - it has no name
    )
