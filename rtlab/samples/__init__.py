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
from typing import TYPE_CHECKING

import numpy as np

from rtlab.core.data import CalibrationData, Task
from rtlab.core.model import Model
from rtlab.core.model import load as load_model
from rtlab.errors import ModelError
from rtlab.samples.architectures import googlenet, inception_chain, pictures, resnet50, transformer_stack

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

__all__ = ["Sample", "digits_input", "inception_chain", "load", "names", "transformer_stack"]


@dataclasses.dataclass(frozen=True, eq=False)
class Sample:
    """A model with data to calibrate it and, where it was trained, the task that it solves.

    ``calibration`` never overlaps ``task``; ``task`` is None for a model that was not trained.
    """

    name: str
    title: str
    model: Model
    calibration: CalibrationData
    task: Task | None
    description: str

    def __repr__(self) -> str:
        task = f", {self.task.name} on {len(self.task.labels)}" if self.task else ""
        return (
            f"<Sample {self.name}: {len(self.model.nodes)} nodes, "
            f"{len(self.calibration)} calibration samples{task}>"
        )


def names() -> tuple[str, ...]:
    """What ``load`` knows, the trained sample first."""
    return tuple(_SAMPLES)


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
        known = ", ".join(f'"{n}"' for n in _SAMPLES)
        raise ModelError(f'Cannot load sample "{name}": no such sample exists. Choose one of {known}.')
    if samples is not None and samples < 1:
        raise ModelError(
            f'Cannot load sample "{name}" with {samples} calibration samples. Ask for at least one.'
        )
    return _SAMPLES[name](samples)


def digits_input(images: NDArray[np.uint8], fit: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Turn 8x8 digit images of 0 to 16 into the network's input, shape ``(len(images), 1, 32, 32)``.

    Each pixel is standardised by its mean and deviation over ``fit`` as scikit-learn's ``StandardScaler``
    does it (a pixel that never varies is only centred), then the picture is enlarged bilinearly. Pixels that
    are seldom inked become rare large values, up to 30 deviations: the outliers that calibrators differ on.
    """
    deviation = fit.std(axis=0)
    standard = (images - fit.mean(axis=0)) / np.where(deviation == 0, 1, deviation)
    at = np.clip((np.arange(32) + 0.5) / 4 - 0.5, 0, 7)
    # Row i of this matrix holds the weights of the source pixels that enlarged pixel i lies between.
    enlarge = np.maximum(0, 1 - np.abs(at[:, None] - np.arange(8)))
    result: NDArray[np.float32] = (enlarge @ standard @ enlarge.T)[:, None].astype(np.float32)
    return result


def _folder() -> Path:
    package = Path(__file__).parents[1]
    for folder in (package / "_share" / "sample_models", package.parent / "sample_models"):
        if folder.is_dir():
            return folder
    raise ModelError(
        f'Cannot find the sample models: neither "{package}" nor its parent holds them. '
        'Install rtlab again with pip install --force-reinstall "rtlab", or run from a checkout.'
    )


def _digits(samples: int | None) -> Sample:
    folder = _folder()
    with np.load(folder / "digits.npz", allow_pickle=False) as file:
        data = {k: file[k] for k in file.files}
    fit = data["train_images"]
    return Sample(
        name="digits_inception",
        title="Handwritten digits, Inception",
        model=load_model(folder / "digits_inception.onnx"),
        calibration=CalibrationData(
            {"image": digits_input(fit[:samples], fit)}, source="digits, training half"
        ),
        task=Task(
            CalibrationData(
                {"image": digits_input(data["test_images"], fit)}, source="digits, held-out half"
            ),
            data["test_labels"],
        ),
        description=(
            "Two Inception blocks with batch normalisation and a residual, trained on scikit-learn's digits. "
            "Rarely inked pixels give its activations outliers, so INT8 calibrators differ visibly."
        ),
    )


def _trait(
    samples: int | None, *, name: str, title: str, description: str, shapes: Mapping[str, int] | None = None
) -> Sample:
    """A model of ``make_traits.py`` with noise as its data."""
    model = load_model(_folder() / f"{name}.onnx", shapes=shapes)
    return Sample(name, title, model, CalibrationData.random(model, samples=samples or 16), None, description)


def _imagenet_like(
    samples: int | None, *, name: str, title: str, make: Callable[[], Model], description: str
) -> Sample:
    count = 16 if samples is None else samples
    data = CalibrationData({"image": pictures(count, 224)}, source="1/f noise pictures")
    return Sample(name, title, make(), data, None, description)


_SYNTHETIC = (
    "The weights are random, standardised layer by layer on 1/f noise: right for graphs, times and numerics, "
    "not for recognising anything."
)
_SAMPLES: dict[str, Callable[[int | None], Sample]] = {
    "digits_inception": _digits,
    "googlenet": functools.partial(
        _imagenet_like,
        name="googlenet",
        title="GoogLeNet, synthetic weights",
        make=googlenet,
        description=f"Inception v1 at 224x224: 57 convolutions in nine Inception blocks. {_SYNTHETIC}",
    ),
    "resnet50": functools.partial(
        _imagenet_like,
        name="resnet50",
        title="ResNet-50, synthetic weights",
        make=resnet50,
        description=f"ResNet-50 v1.5 at 224x224: 53 convolutions, 16 residual additions. {_SYNTHETIC}",
    ),
    "dynamic_shapes": functools.partial(
        _trait,
        name="dynamic_shapes",
        title="Attention of dynamic length",
        shapes={"length": 24},
        description=(
            "Self-attention over N×length×32 tokens: shapes computed in the graph, constants to fold, views. "
            "Here length is 24."
        ),
    ),
    "control_flow": functools.partial(
        _trait,
        name="control_flow",
        title="A branch",
        description="An If whose bodies read the outer graph: one of two convolutions, by brightness.",
    ),
    "hostile_names": functools.partial(
        _trait,
        name="hostile_names",
        title="Hostile names",
        description="Nodes and values whose names are missing, repeated, very long, or full of separators.",
    ),
}
