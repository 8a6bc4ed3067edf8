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
    "Sample",
    "SampleCard",
    "SampleCards",
    "digits_input",
    "digits_picture",
    "engine",
    "engines",
    "inception_chain",
    "list",
    "load",
    "names",
    "transformer_stack",
    "which",
]

#: Samples of data that come with a model which was not trained.
UNTRAINED = 16
#: What the data of samples say that they are, but for those that are random noise.
SOURCES = frozenset(
    {"digits, training half", "sentences, of the training", "1/f noise pictures", "random words"}
)


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
    """What ``load`` knows, the trained samples first."""
    return tuple(_SAMPLES)


def list() -> SampleCards:  # noqa: A001 - what one types after "samples."
    """A card for every sample, in the order of ``names``: task, data, script, accuracy, trait, licence and a picture.

    Nothing is loaded or made for it.

    Raises:
        ModelError: the files are not installed.
    """
    return read(_folder() / "cards.json")


def engines() -> tuple[str, ...]:
    """What ``engine`` knows; ``sample_models/engines/NOTICE.md`` says whose figures they are.

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
        sample_names = quote_names(_SAMPLES)
        raise ModelError(f'Cannot load sample "{name}": no such sample exists. Choose one of {sample_names}.')
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
    # Made here, and cut out of nothing.
    return model.name if model.ir.producer_name == "rtlab" else ""


def _folder() -> Path:
    if (folder := find_package_data("sample_models")) is not None:
        return folder
    package = Path(__file__).parents[1]
    raise ModelError(
        f'Cannot find the sample models: neither "{package}" nor its parent holds them. '
        'Install rtlab again with pip install --force-reinstall "rtlab", or run from a checkout.'
    )


def _digits(samples: int | None, *, name: str) -> Sample:
    folder = _folder()
    title, description = NETWORKS[name]
    calibration, task = load_halves(folder / "digits.npz", name, samples)
    return Sample(name, title, load_model(folder / f"{name}.onnx"), calibration, task, description)


def _sentences(samples: int | None) -> Sample:
    folder = _folder()
    with np.load(folder / "sentences.npz", allow_pickle=False) as archive:
        data = {k: archive[k] for k in archive.files}
    training_inputs, test_inputs = (sentence_input(data[k]) for k in ("train_ids", "test_ids"))
    training_inputs = {k: v[:samples] for k, v in training_inputs.items()}
    return Sample(
        name="sentences",
        title="Who acts, an encoder with an attention mask",
        model=load_model(folder / "sentences.onnx"),
        calibration=CalibrationData(training_inputs, source="sentences, of the training"),
        task=Task(CalibrationData(test_inputs, source="sentences, held out"), data["test_actors"]),
        description=(
            "Two encoder blocks as in BERT read token ids and an attention mask, and tell which of ten animals acts in "
            "a made-up sentence. Padding is masked by the lowest number of FP32. See what becomes of the mask in fp16, "
            "and of LayerNormalization, GELU and attention in int8."
        ),
    )


def _trait(
    samples: int | None, *, name: str, title: str, description: str, shapes: Mapping[str, int] | None = None
) -> Sample:
    """A model of ``make_traits.py`` with noise as its data."""
    model = load_model(_folder() / f"{name}.onnx", shapes=shapes)
    data = CalibrationData.random(model, samples=samples or UNTRAINED)
    return Sample(name, title, model, data, None, description)


def _synthetic(
    samples: int | None,
    *,
    make: Callable[[], Model],
    title: str,
    description: str,
    draw: Callable[[int], NDArray[Any]],
    source: str = "1/f noise pictures",
) -> Sample:
    """A model that is made here, with random samples for its one input."""
    model = make()
    arrays = {model.inputs[0]: draw(UNTRAINED if samples is None else samples)}
    data = CalibrationData(arrays, source=source, synthetic=True)
    return Sample(model.name, title, model, data, None, description)


_PICTURES = functools.partial(pictures, size=224)
_SYNTHETIC = (
    "The weights are random, standardised layer by layer on 1/f noise: right for graphs, times and numerics, "
    "not for recognising anything."
)
_SAMPLES: dict[str, Callable[[int | None], Sample]] = {
    **{name: functools.partial(_digits, name=name) for name in NETWORKS},
    "sentences": _sentences,
    "googlenet": functools.partial(
        _synthetic,
        make=googlenet,
        title="GoogLeNet, synthetic weights",
        description=f"Inception v1 at 224x224: 57 convolutions in nine Inception blocks. {_SYNTHETIC}",
        draw=_PICTURES,
    ),
    "resnet50": functools.partial(
        _synthetic,
        make=resnet50,
        title="ResNet-50, synthetic weights",
        description=f"ResNet-50 v1.5 at 224x224: 53 convolutions, 16 residual additions. {_SYNTHETIC}",
        draw=_PICTURES,
    ),
    "mobilenet_v2": functools.partial(
        _synthetic,
        make=mobilenet_v2,
        title="MobileNetV2, synthetic weights",
        description=f"MobileNetV2 at 224x224: 17 blocks with a depthwise convolution each. {_SYNTHETIC}",
        draw=_PICTURES,
    ),
    "csp_detector": functools.partial(
        _synthetic,
        make=csp_detector,
        title="A detector of CSP blocks with SiLU, synthetic weights",
        description=(
            "60 convolutions, 57 SiLU, eight CSP blocks and a pyramid of three maps at 256x256, of the layers and "
            f"widths of YOLOv5n. {_SYNTHETIC}"
        ),
        draw=functools.partial(pictures, size=256),
    ),
    "bert": functools.partial(
        _synthetic,
        make=bert,
        title="BERT, four layers, synthetic weights",
        description=(
            "Four encoder layers of BERT-base's size over 128 tokens of 8,192 words. The weights are random, "
            "standardised layer by layer: right for graphs, times and numerics, not for understanding anything."
        ),
        draw=sentences,
        source="random words",
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
