"""One variant timed at several batch sizes."""

from __future__ import annotations

import dataclasses
import datetime
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from rtlab.analyses.batches import BatchTime, Sweep
from rtlab.analyses.samples.spread import compute_spread
from rtlab.core.arrays import Batch
from rtlab.core.budget import WorkContext
from rtlab.core.data import CalibrationData
from rtlab.core.facts import VariantResult
from rtlab.core.protocols import Runner
from rtlab.core.validation import validate_integer
from rtlab.errors import RtlabError, RunError, VariantError

if TYPE_CHECKING:
    from rtlab.core.engine import Engine
    from rtlab.core.model import Model

#: Powers of two, as kernels are made for; a laptop's CPU is done with them in a minute.
BATCHES = (1, 2, 4, 8, 16, 32, 64)


@dataclasses.dataclass(frozen=True)
class BatchSweep:
    """Time an engine that ran here at each batch size, ``runs`` inferences each.

    A batch that cannot be run ends the sweep, with the reason in ``note``; where it is the first, with its error.
    """

    name: str
    engine: Engine
    model: Model
    data: CalibrationData
    batches: tuple[int, ...]
    runs: int = 20
    partial: ClassVar[bool] = False

    @classmethod
    def of(
        cls, facts: VariantResult, data: CalibrationData, batches: Sequence[int], anywhere: str | None
    ) -> BatchSweep:
        """The sweep of a variant; ``anywhere`` is the name of a backend that runs wherever rtlab is.

        Raises:
            VariantError: the engine did not run here, its batch is fixed, or a size is not positive.
        """
        error_prefix = f'Cannot time "{facts.name}" at several batch sizes'
        if facts.measured is None or facts.recorded:
            raise VariantError(
                f"{error_prefix}: it was not run here. Build it where it can run; backend {anywhere} runs anywhere."
            )
        if not facts.prepared.model.dynamic_batch or facts.prepared.model.written_batch:
            raise VariantError(
                f"{error_prefix}: its model has a fixed batch dimension. Export the model with a dynamic batch, for "
                'example dynamic_axes={"input": {0: "batch"}} in torch.onnx.export.'
            )
        return cls(
            facts.name, facts.measured, facts.prepared.model, data, _validate_sizes(batches, error_prefix)
        )

    def steps(self, context: WorkContext[Runner]) -> Iterator[Sweep]:
        """The sweep after each batch size."""
        rows: list[BatchTime] = []
        for size in context.iterate(self.batches, "timing batch sizes"):
            context.phase(f"Timing batch {size}, {len(rows) + 1} of {len(self.batches)}")
            note = ""
            try:
                profile = context.tool.profile(
                    self.engine, _make_batch(self.data, self.model, size), context, runs=self.runs
                )
            except RunError as error:
                if not rows:
                    raise
                note = f"Batch {size} could not be run: {error}"
            else:
                context.count(runs=self.runs)
                if (times := compute_spread(profile.total)) is not None:
                    rows.append(BatchTime(size, times))
            yield Sweep(
                self.name, context.tool.source, profile.device, profile.processor,
                datetime.datetime.now(datetime.timezone.utc), tuple(rows), note,
            )  # fmt: skip
            if note:
                return


def _validate_sizes(batches: Any, error_prefix: str) -> tuple[int, ...]:
    sizes = list(batches) if isinstance(batches, Iterable) and not isinstance(batches, str) else [batches]
    if not sizes:
        raise VariantError(f"{error_prefix}: no batch size is given. Give sizes such as 1, 2, 4.")
    return tuple(sorted({validate_integer(b, f"{error_prefix}, with", "batch") for b in sizes}))


def _make_batch(data: CalibrationData, model: Model, size: int) -> Batch:
    """One batch of so many samples; where there are fewer, they come again."""
    try:
        first = next(data.batches(model, size))
    except (StopIteration, RtlabError):
        raise RunError(
            f"Cannot make a batch of {size}: {data.source} has no samples. Give data to the study."
        ) from None
    have = data.samples_in(model, first)
    order = list(itertools.islice(itertools.cycle(range(have)), size))
    return {k: np.ascontiguousarray(v[order]) for k, v in first.items()}
