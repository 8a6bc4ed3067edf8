"""Times and tensors that a runner measured."""

from __future__ import annotations

import dataclasses
import datetime
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

import numpy as np

from rtlab.core.buildlog import BuildLog
from rtlab.core.engine import Engine
from rtlab.core.memo import Memoizable
from rtlab.core.message import MessageMatch
from rtlab.core.model import Model
from rtlab.errors import RunError

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: One batch of named tensors.
Outputs = Mapping[str, "NDArray[np.generic]"]

#: The kind of processor of a time; of a profile, both where some of its nodes ran on the CPU.
Processor = Literal["CPU", "GPU", "NPU", "CPU and GPU"]


@dataclasses.dataclass(frozen=True)
class Profile(Memoizable):
    """Per-layer times of one engine on one device.

    ``samples`` maps a layer id to a float64 array of milliseconds, shape ``(runs,)``; ``total`` holds the
    time of each whole inference in milliseconds, shape ``(runs,)``, measured without timing its layers.

    A profile from elsewhere may have one median or mean over ``runs`` inferences instead of samples, an empty ``total``
    and None for ``taken``.
    """

    source: str
    device: str
    samples: Mapping[str, NDArray[np.float64]]
    total: NDArray[np.float64]
    warmup: int
    taken: datetime.datetime | None
    note: str = ""
    processor: Processor = "CPU"
    runs: int | None = None

    def merged(self, other: Profile) -> Profile:
        """This profile and a later one of the same engine as one: its samples after these, its date, both notes.

        Where one of them times no layers, those of the other count. A sentence of both notes that differs in numbers
        alone is kept with the later ones.

        Raises:
            RunError: they are of other engines, devices or settings.
        """
        for what in ("source", "device", "processor"):
            if (mine := getattr(self, what)) != (its := getattr(other, what)):
                raise RunError(
                    f'Cannot merge two profiles: one has {what} "{mine}", the other "{its}". Merge those of one '
                    "engine, device and number of threads."
                )
        both = bool(self.samples and other.samples)
        if both and (strange := sorted(self.samples.keys() ^ other.samples.keys())):
            raise RunError(
                f'Cannot merge two profiles: only one of them times layer "{strange[0]}". Merge those of one engine.'
            )
        return dataclasses.replace(
            other,
            samples={name: np.concatenate([s, other.samples[name]]) for name, s in self.samples.items()}
            if both
            else self.samples or other.samples,
            total=np.concatenate([self.total, other.total]),
            warmup=self.warmup + other.warmup,
            note=_merge_notes("" if other.samples and not both else self.note, other.note),
            runs=(self.runs or 0) + (other.runs or 0),
        )

    def __repr__(self) -> str:
        return f"<Profile {self.source} {self.device}: {len(self.samples)} layers, {len(self.total)} runs>"


def _merge_notes(first: str, then: str) -> str:
    """Sentences of two notes, each once, of those that differ in numbers the later one."""
    sentences = [s for note in (first, then) for s in note.split(". ") if s]
    return ". ".join({re.sub(r"[\d.]+(e[+-]?\d+)?", "#", s): s for s in sentences}.values())


@dataclasses.dataclass(frozen=True)
class Throughput:
    """How many inferences an engine finishes when several run at a time, each with its own stream and context.

    Measured over ``seconds`` without copying inputs and outputs; ``batch`` is the number of samples in an inference.
    """

    source: str
    device: str
    streams: int
    batch: int
    inferences: int
    seconds: float
    taken: datetime.datetime
    note: str = ""

    @property
    def rate(self) -> float:
        """Inferences per second."""
        return self.inferences / self.seconds

    def __repr__(self) -> str:
        return (
            f"<Throughput {self.rate:.4g}/s of batch {self.batch} on {self.streams} streams, {self.device}>"
        )


@dataclasses.dataclass(frozen=True)
class Recording:
    """The content of another machine's files about one engine.

    ``outputs`` are tensors of one inference, such as ``trtexec --exportOutput`` writes, and ``reference`` those of a
    second runner on the same inputs. ``source`` is the model that was built, without its weights, and ``structure`` its
    ``Model.structure``; ``graph`` is the compiler's input where that was not ``source`` itself. ``messages`` are
    failures, warnings and reports in a log.
    """

    engine: Engine
    profile: Profile | None = None
    log: BuildLog | None = None
    outputs: Outputs | None = None
    reference: Outputs | None = None
    source: Model | None = None
    graph: Model | None = None
    structure: str = ""
    messages: tuple[MessageMatch, ...] = ()
