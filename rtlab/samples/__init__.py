"""Models to try rtlab on: small trained ones with their data, and well-known architectures made on demand.

>>> from rtlab import samples
>>> sample = samples.load("digits_inception")
>>> len(sample.calibration), len(sample.task.labels)
(898, 899)
"""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rtlab.core.data import CalibrationData
from rtlab.core.files import find_package_data
from rtlab.core.model import Model
from rtlab.core.model import load as load_model
from rtlab.core.phrases import quote_names
from rtlab.core.task import Task
from rtlab.errors import ModelError
from rtlab.samples.architectures import (
    csp_detector,
    googlenet,
    inception_chain,
    mobilenet_v2,
    pictures,
    resnet50,
)
from rtlab.samples.cards import SampleCard, SampleCards, read
from rtlab.samples.digits import NETWORKS, digits_input, digits_picture, load_halves
from rtlab.samples.transformers import bert, sentence_input, sentences, transformer_stack

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

__all__ = [
    "Sample", "SampleCard", "SampleCards", "digits_input", "digits_picture", "engine", "engines", "inception_chain",
    "list", "load", "names", "transformer_stack", "which",
]  # fmt: skip

#: Samples of data that come with a model which was not trained.
UNTRAINED = 16
#: ``CalibrationData.source`` of samples, but for random noise.
SOURCES = frozenset(
    {"digits, training half", "sentences, of the training", "1/f noise pictures", "random words"}
)


@dataclasses.dataclass(frozen=True, eq=False)
class Sample:
    """A model with data to calibrate it and, where it was trained, the task that it solves.

    ``calibration`` never overlaps ``task``; ``task`` is None for a model that was not trained. ``list`` says what a
    sample shows.
    """

    name: str
    model: Model
    calibration: CalibrationData
    task: Task | None = None

    def __repr__(self) -> str:
        task = f", {self.task.name} on {len(self.task.labels)}" if self.task else ""
        return (
            f"<Sample {self.name}: {len(self.model.nodes)} nodes, "
            f"{len(self.calibration)} calibration samples{task}>"
        )


def names() -> tuple[str, ...]:
    """The names that ``load`` takes, the trained samples first."""
    return tuple(_SAMPLES)


def list() -> SampleCards:  # noqa: A001 - what one types after "samples."
    """A card for every sample, in the order of ``names``, without loading any; raises ``ModelError`` as ``engines``."""
    return read(_folder() / "cards.json")


def engines() -> tuple[str, ...]:
    """The names that ``engine`` takes; ``sample_models/engines/NOTICE.md`` has the sources of their figures.

    Raises:
        ModelError: the files are not installed.
    """
    return tuple(sorted(p.name for p in (_folder() / "engines").iterdir() if p.is_dir()))


def engine(name: str) -> tuple[Path, ...]:
    """The files of an engine, for ``rtlab.read``: a saved build with the figures of a real GPU, or a build's log.

    >>> import rtlab
    >>> rtlab.read(*engine("resnet18-a100-fp16"))["engine"].timing
    <Timing 0.863 ms, 36 layers, measured, trtexec on NVIDIA A100 80GB PCIe>

    Raises:
        ModelError: the name is unknown, or the files are not installed.
    """
    if name not in engines():
        raise ModelError(
            f'Cannot find engine "{name}": no such engine is shipped. Choose one of {quote_names(engines())}.'
        )
    return tuple(sorted((_folder() / "engines" / name).iterdir()))


def load(name: str, *, samples: int | None = None) -> Sample:
    """Load or make a sample by name.

    Args:
        name: One of ``names()``.
        samples: How many calibration samples to give. None means all of the training half for a trained model
            and 16 otherwise.

    Raises:
        ModelError: the name is unknown, ``samples`` is not positive, or the files are not installed.
    """
    if name not in _SAMPLES:
        raise ModelError(
            f'Cannot load sample "{name}": no such sample exists. Choose one of {quote_names(_SAMPLES)}.'
        )
    if samples is not None and samples < 1:
        raise ModelError(
            f'Cannot load sample "{name}" with {samples} calibration samples. Ask for at least one.'
        )
    return _SAMPLES[name](samples)


def which(model: Model) -> str:
    """The name by which ``load`` gives a model; empty of one that is no sample."""
    if model.name not in _SAMPLES:
        return ""
    if model.path is not None:
        return model.name if model.path.parent == _folder() else ""
    return model.name if model.ir.producer_name == "rtlab" else ""


def _folder() -> Path:
    if (folder := find_package_data("sample_models")) is not None:
        return folder
    raise ModelError(
        f'Cannot find the sample models: neither "{Path(__file__).parents[1]}" nor its parent holds them. '
        'Install rtlab again with pip install --force-reinstall "rtlab", or run from a checkout.'
    )


def _load_sentences(samples: int | None) -> Sample:
    with np.load(_folder() / "sentences.npz", allow_pickle=False) as archive:
        data = {k: archive[k] for k in archive.files}
    training_inputs, test_inputs = (sentence_input(data[k]) for k in ("train_ids", "test_ids"))
    calibration = CalibrationData(
        {k: v[:samples] for k, v in training_inputs.items()}, source="sentences, of the training"
    )
    task = Task(CalibrationData(test_inputs, source="sentences, held out"), data["test_actors"])
    return Sample("sentences", load_model(_folder() / "sentences.onnx"), calibration, task)


def _load_digits(samples: int | None, *, name: str) -> Sample:
    calibration, task = load_halves(_folder() / "digits.npz", name, samples)
    return Sample(name, load_model(_folder() / f"{name}.onnx"), calibration, task)


def _load_trait(samples: int | None, *, name: str, shapes: Mapping[str, int] | None = None) -> Sample:
    """A model of ``make_traits.py`` with noise as its data."""
    model = load_model(_folder() / f"{name}.onnx", shapes=shapes)
    return Sample(name, model, CalibrationData.random(model, samples=samples or UNTRAINED))


def _generate(
    samples: int | None,
    *,
    make: Callable[[], Model],
    draw: Callable[[int], NDArray[Any]],
    source: str = "1/f noise pictures",
) -> Sample:
    """A model of random weights, standardised layer by layer, with random samples for its one input."""
    model = make()
    arrays = {model.inputs[0]: draw(samples or UNTRAINED)}
    return Sample(model.name, model, CalibrationData(arrays, source=source, synthetic=True))


_PICTURES = functools.partial(pictures, size=224)
_SAMPLES: dict[str, Callable[[int | None], Sample]] = {
    **{name: functools.partial(_load_digits, name=name) for name in NETWORKS},
    "sentences": _load_sentences,
    "googlenet": functools.partial(_generate, make=googlenet, draw=_PICTURES),
    "resnet50": functools.partial(_generate, make=resnet50, draw=_PICTURES),
    "mobilenet_v2": functools.partial(_generate, make=mobilenet_v2, draw=_PICTURES),
    "csp_detector": functools.partial(
        _generate, make=csp_detector, draw=functools.partial(pictures, size=256)
    ),
    "bert": functools.partial(_generate, make=bert, draw=sentences, source="random words"),
    "dynamic_shapes": functools.partial(_load_trait, name="dynamic_shapes", shapes={"length": 24}),
    "control_flow": functools.partial(_load_trait, name="control_flow"),
    "hostile_names": functools.partial(_load_trait, name="hostile_names"),
}
