"""A model that expresses its precision in its own graph."""

from __future__ import annotations

import dataclasses
import functools
import threading
from collections.abc import Callable, Mapping
from typing import Any

from rtlab.core.model import Model
from rtlab.core.progress import Silent, check
from rtlab.core.protocols import Progress
from rtlab.core.scale import Scale
from rtlab.core.variant import Precision


class Emulation:
    """A model that is made at the first access, by one thread; if pickled before, in the other process."""

    def __init__(self, make: Callable[[Callable[[], object]], Model]) -> None:
        """``make`` takes a function to call between its passes, which may raise."""
        self._make: Callable[[Callable[[], object]], Model] | None = make
        self._model: Model | None = None
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[object, ...]:
        # In this order: the one goes only after the other is there.
        make, model = self._make, self._model
        return _restore, (None if model is not None else make, model)

    @property
    def made(self) -> Model | None:
        """The model, where it was made already."""
        return self._model

    def model(self, progress: Progress) -> Model:
        """The model, made now if need be; raises ``Cancelled`` where ``progress`` asks to stop."""
        with self._lock:
            if self._model is None and self._make is not None:
                self._model = self._make(functools.partial(check, progress, "preparing the model"))
                self._make = None
            assert self._model is not None  # noqa: S101 - what made it goes only then
            return self._model


def _restore(make: Any, model: Model | None) -> Emulation:
    emulation = Emulation(make)
    emulation._model = model  # noqa: SLF001 - the other half of its own pickle
    return emulation


@dataclasses.dataclass(frozen=True, eq=False)
class Prepared:
    """A model whose graph expresses one or several precisions.

    ``model`` is the typed graph for compilers. ``emulation`` is computed faithfully on the CPU at ONNX Runtime's level
    BASIC; it is ``model`` itself where only FP32, INT8 and FP8 are in use, and otherwise made at the first access. In
    both, nodes name their source by ``rtlab.origin``, and in ``emulation`` every value of the source keeps its name.
    ``scales`` are those of the quantized activations; ``notes`` are on the unexpected, above all what stays FP32 and
    why. ``precisions`` are those of main-graph nodes of the source by id, without FP32. ``reference`` is the model to
    compare values with where channels have another scale than in the source, or nodes another form; None where that is
    the source itself.
    """

    model: Model
    emulated: Model | Emulation
    scales: Mapping[str, Scale] = dataclasses.field(default_factory=dict)
    notes: tuple[str, ...] = ()
    precisions: Mapping[str, Precision] = dataclasses.field(default_factory=dict)
    reference: Model | None = None

    @property
    def emulation(self) -> Model:
        """What the CPU computes, made now if need be: see ``emulate``."""
        return self.emulate()

    def emulate(self, progress: Progress | None = None) -> Model:
        """What the CPU computes, made now if need be; raises ``Cancelled`` where ``progress`` asks to stop."""
        model = self.emulated
        return model.model(progress or Silent()) if isinstance(model, Emulation) else model
