"""One value of a variant beside the reference, channel by channel, on all samples."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from rtlab.analyses.channels import ChannelErrors, ChannelSums
from rtlab.core.budget import WorkContext
from rtlab.core.protocols import Evaluator
from rtlab.errors import BackendError, RunError
from rtlab.experiments.sizing import batch_size
from rtlab.quantize.isolated_error import build_isolated_error_model

if TYPE_CHECKING:
    from rtlab.core.data import CalibrationData
    from rtlab.core.model import Model

_ACTIVITY = "measuring channels"


@dataclasses.dataclass(frozen=True)
class ChannelSearch:
    """Measure the errors of a value's channels.

    Attributes:
        variant: Its name.
        source: The reference.
        emulation: What the CPU computes as the variant.
        value: A value of both.
        axis: Along which its channels lie, None where it has none.
        threshold: The largest magnitude that its quantizer has a step for, None where it is not quantized.
        data: The samples.
    """

    variant: str
    source: Model
    emulation: Model
    value: str
    axis: int | None
    threshold: float | None
    data: CalibrationData
    partial: ClassVar[bool] = True

    def steps(self, context: WorkContext[Evaluator]) -> Iterator[ChannelErrors]:
        """The errors after each batch."""
        with contextlib.ExitStack() as stack:
            open_model = functools.partial(context.tool.reading, progress=context)
            context.phase("Opening the model")
            error = ""
            with contextlib.suppress(BackendError):
                isolated = build_isolated_error_model(self.source, self.emulation)
                if isolated is not None and self.value in isolated.error_sums:
                    error = isolated.error_sums[self.value].error
                    plain = stack.enter_context(open_model(isolated.model, [self.value, error]))
            if not error:
                plain = stack.enter_context(open_model(self.source, [self.value]))
            rounded = stack.enter_context(open_model(self.emulation, [self.value]))
            context.phase("Measuring channels", self.data.count)
            sample_count, sums = 0, None
            size = batch_size(self.source, [self.value], self.data, context.tool)
            for batch in self.data.batches(self.source, size):
                context.check(_ACTIVITY)
                exact = plain(batch)
                x, y = (np.asarray(one[self.value], np.float32) for one in (exact, rounded(batch)))
                local_error = np.asarray(exact[error], np.float32) if error else None
                if x.shape != y.shape:
                    raise RunError(
                        f'Cannot compare value "{self.value}": it has shape {x.shape} in the reference and {y.shape} '
                        "in the variant, since numbers decide its size. Ask for one before it."
                    )
                more = ChannelSums.from_batch(x, y, local_error, self.axis, self.threshold)
                if sums is None:
                    sums = more
                elif len(sums.sums) == len(more.sums):
                    sums.add(more)
                else:
                    raise RunError(
                        f'Cannot compare value "{self.value}" channel by channel: it has {len(sums.sums)} channels for '
                        f"some samples and {len(more.sums)} for others. Ask for one that has as many for all."
                    )
                count = self.data.samples_in(self.source, batch)
                sample_count += count
                context.count(runs=2)
                context.advance(count)
                yield ChannelErrors(
                    self.variant,
                    self.value,
                    self.source.producers[self.value].id,
                    self.axis,
                    self.threshold,
                    sample_count,
                    f"{context.tool.source}, {self.data.source}",
                    sums.compute_rows(quantized=self.threshold is not None),
                    self.data.synthetic,
                )
                if context.is_exhausted:
                    return
