"""One variant timed at several batch sizes."""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rtlab.backends.reference import runner_of, stand_in
from rtlab.core.arrays import Batch
from rtlab.core.data import CalibrationData
from rtlab.core.facts import Facts
from rtlab.core.progress import check
from rtlab.core.protocols import Progress
from rtlab.core.whole import whole
from rtlab.errors import RtlabError, RunError, VariantError
from rtlab.questions.batches.sweeps import BatchTime, Sweep
from rtlab.questions.samples.spread import spread

if TYPE_CHECKING:
    from rtlab.core.model import Model

#: Powers of two, as kernels are made for; a laptop's CPU is done with them in a minute.
BATCHES = (1, 2, 4, 8, 16, 32, 64)


def sweep(
    facts: Facts, data: CalibrationData, batches: Sequence[int], progress: Progress, *, runs: int = 20
) -> Iterator[Sweep]:
    """Time a variant's measured engine at each batch size; what is known so far after each of them.

    A batch that cannot be run ends the sweep, with the reason in ``note``.

    Raises:
        VariantError: the engine did not run here, its batch is fixed, or a size is not positive.
        RunError: not even the first batch can be run.
        Cancelled: ``progress`` asked to stop.
    """
    name, engine = facts.name, facts.measured
    doing = f'Cannot time "{name}" at several batch sizes'
    if engine is None or facts.recorded:
        raise VariantError(
            f"{doing}: it was not run here. Build it where it can run; backend {stand_in()} runs anywhere."
        )
    if not facts.prepared.model.dynamic_batch:
        raise VariantError(
            f"{doing}: its model has a fixed batch dimension. Export the model with a dynamic batch, for example "
            'dynamic_axes={"input": {0: "batch"}} in torch.onnx.export.'
        )
    sizes = _sizes(batches, doing)
    runner = runner_of(engine.backend)
    rows: list[BatchTime] = []
    for number, size in enumerate(sizes):
        progress.phase(f"Timing batch {size}, {number + 1} of {len(sizes)}")
        check(progress, "timing batch sizes")
        note = ""
        try:
            profile = runner.profile(engine, _filled(data, facts.prepared.model, size), progress, runs=runs)
        except RunError as error:
            if not rows:
                raise
            note = f"Batch {size} could not be run: {error}"
        else:
            if (times := spread(profile.total)) is not None:
                rows.append(BatchTime(size, times))
        last = Sweep(
            name, runner.source, profile.device, profile.processor,
            datetime.datetime.now(datetime.timezone.utc), tuple(rows), note,
        )  # fmt: skip
        yield last
        if note:
            return


def _sizes(batches: Any, doing: str) -> list[int]:
    given = list(batches) if isinstance(batches, Iterable) and not isinstance(batches, str) else [batches]
    if not given:
        raise VariantError(f"{doing}: no batch size is given. Give sizes such as 1, 2, 4.")
    return sorted({whole(b, f"{doing}, with", "batch") for b in given})


def _filled(data: CalibrationData, model: Model, size: int) -> Batch:
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
