"""Models to try rtlab on: small trained ones with their data, and well-known architectures made on demand.

>>> from rtlab import samples
>>> sample = samples.load("digits_inception")
>>> len(sample.calibration), len(sample.task.labels)
(898, 899)
"""

from __future__ import annotations

import dataclasses
import functools
import html
import json
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

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
from rtlab.samples.blocks import (
    decoder_with_cache,
    draw_prompts,
    mixture_of_experts,
    unet_block,
    whisper_encoder,
)
from rtlab.samples.transformers import bert, sentence_input, sentences, transformer_stack

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

#: How a notebook shows the cards: its own colours where it has some, and as many in a row as there is room for.
_GRID = "display:grid;grid-template-columns:repeat(auto-fill,minmax(17rem,1fr));gap:.75rem;line-height:1.4"
_BOX = (
    "border:1px solid var(--jp-border-color2,#8886);border-radius:6px;padding:.75rem;display:flex;"
    "flex-direction:column;gap:.35rem"
)
_QUIET = "color:var(--jp-ui-font-color2,inherit);font-size:.85em"
_LIST = f"display:grid;grid-template-columns:auto 1fr;gap:.1rem .6rem;margin:0;{_QUIET}"


@dataclasses.dataclass(frozen=True)
class SampleCard:
    """One sample, without its model.

    Attributes:
        name: The argument of ``load``.
        title: A title in words.
        trait: What the sample shows.
        task: What it was trained to do, or that it was not.
        data: What it is calibrated and scored on.
        script: What makes it: a script of ``sample_models``, or a function of rtlab.
        licence: Of the model, and of the data where that differs.
        nodes: Number of nodes, those of bodies included.
        metric: What ``accuracy`` counts, "right" (in percent) or "perplexity"; empty without a task.
        accuracy: The score by preparation, measured on ONNX Runtime's CPU; empty without a task.
        measured_on: Number of samples behind the scores.
        thumbnail: The graph from input to output, and the first sample, as SVG.
    """

    name: str
    title: str
    trait: str
    task: str
    data: str
    script: str
    licence: str
    nodes: int
    metric: str
    accuracy: Mapping[str, float]
    measured_on: int
    thumbnail: str = dataclasses.field(repr=False)

    @property
    def scores(self) -> str:
        """The numbers and their source in words; empty without a task."""
        if not self.accuracy:
            return ""
        form = "{:.2f} % {}" if self.metric == "right" else "{:.3f} {}"
        scores = ", ".join(form.format(score, how) for how, score in self.accuracy.items())
        return f"{scores}; measured on {self.measured_on} held-out samples, ONNX Runtime's CPU"

    def _repr_html_(self) -> str:
        facts = {
            "Task": self.task,
            "Data": self.data,
            self.metric.capitalize(): self.scores,
            "Size": f"{self.nodes} nodes",
            "Made by": self.script,
            "Licence": self.licence,
        }
        rows = "".join(
            f'<dt>{k}</dt><dd style="margin:0;text-align:left">{html.escape(v)}</dd>'
            for k, v in facts.items()
            if v
        )
        return (
            f'<div style="{_BOX}">{self.thumbnail}<b>{html.escape(self.title)}</b>'
            f'<code style="align-self:flex-start">{html.escape(self.name)}</code>'
            f"<div>{html.escape(self.trait)}</div>"
            f'<dl style="{_LIST}">{rows}</dl></div>'
        )


class SampleCards(tuple[SampleCard, ...]):
    """The cards of all samples: a grid of pictures in a notebook, a table as text."""

    __slots__ = ()

    def __repr__(self) -> str:
        wide = max((len(c.name) for c in self), default=0)
        return "\n".join(f"{c.name:{wide}}  {c.nodes:4} nodes  {c.trait}" for c in self)

    def _repr_html_(self) -> str:
        return f'<div style="{_GRID}">{"".join(c._repr_html_() for c in self)}</div>'


def read(path: Path) -> SampleCards:
    """The cards that ``sample_models/make_cards.py`` wrote."""
    return SampleCards([SampleCard(**fields) for fields in json.loads(path.read_text(encoding="utf-8"))])


#: Names of the networks, which are those of their files.
NETWORKS = (
    "digits_inception", "digits_outlier", "digits_mobilenet", "digits_dark", "digits_light", "digits_vit",
    "digits_lstm", "digits_gru", "digits_qat", "digits_qat_misplaced", "digits_sparse24", "fp16_overflow",
)  # fmt: skip
#: The networks that read bytes over 255; the others read standardised pixels.
_GROUNDS: Mapping[str, Literal["dark", "light"]] = {"digits_dark": "dark", "digits_light": "light"}


def digits_input(images: NDArray[np.uint8], fit: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Turn 8x8 digit images of 0 to 16 into the networks' input, shape ``(len(images), 1, 32, 32)``.

    Each pixel is standardised by its mean and deviation over ``fit`` as scikit-learn's ``StandardScaler``
    does it (a pixel that never varies is only centred), then the picture is enlarged bilinearly. Pixels that
    are seldom inked become rare large values, up to 30 deviations: the outliers that calibrators differ on.
    """
    deviation = fit.std(axis=0)
    return _enlarge((images - fit.mean(axis=0)) / np.where(deviation == 0, 1, deviation)).astype(np.float32)


def digits_picture(images: NDArray[np.uint8], *, ground: Literal["dark", "light"]) -> NDArray[np.float32]:
    """Turn 8x8 digit images of 0 to 16 into pictures of bytes over 255, shape ``(len(images), 1, 32, 32)``.

    Each picture is stretched to 0 to 255, enlarged bilinearly and rounded to a byte: bright ink on a ``dark`` ground
    of 0, or turned round, on a ``light`` one of 255. Nothing is standardised.
    """
    bytes_ = np.rint(_enlarge(images * (255 / 16)))
    return ((bytes_ if ground == "dark" else 255 - bytes_) / 255).astype(np.float32)


def _enlarge(images: NDArray[np.floating]) -> NDArray[np.float64]:
    """Bilinearly to 32x32, with an axis of one channel."""
    at = np.clip((np.arange(32) + 0.5) / 4 - 0.5, 0, 7)
    # Row i of this matrix holds the weights of the source pixels that enlarged pixel i lies between.
    enlarge = np.maximum(0, 1 - np.abs(at[:, None] - np.arange(8)))
    result: NDArray[np.float64] = (enlarge @ images @ enlarge.T)[:, None]
    return result


def load_halves(file: Path, name: str, samples: int | None) -> tuple[CalibrationData, Task]:
    """The training half or its first ``samples`` to calibrate a network on, the held-out half to score it on."""
    with np.load(file, allow_pickle=False) as archive:
        data = {k: archive[k] for k in archive.files}
    fit = data["train_images"]

    def read(images: NDArray[np.uint8]) -> NDArray[np.float32]:
        ground = _GROUNDS.get(name)
        return digits_input(images, fit) if ground is None else digits_picture(images, ground=ground)

    training_data = CalibrationData({"image": read(fit[:samples])}, source="digits, training half")
    test_data = CalibrationData({"image": read(data["test_images"])}, source="digits, held-out half")
    return training_data, Task(test_data, data["test_labels"])


__all__ = [
    "Sample", "SampleCard", "SampleCards", "digits_input", "digits_picture", "engine", "engines", "inception_chain",
    "list", "load", "names", "sweep", "transformer_stack", "which",
]  # fmt: skip

#: Samples of data that come with a model which was not trained.
UNTRAINED = 16
#: ``CalibrationData.source`` of samples, but for random noise.
SOURCES = frozenset(
    {
        "digits, training half",
        "sentences, of the training",
        "characters, of the training",
        "1/f noise pictures",
        "random words",
    }
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
        return f"<Sample {self.name}: {self.model.size}, {len(self.calibration)} calibration samples{task}>"


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


def sweep(folder: str | Path) -> Path:
    """Unpack the store of a large sweep into a folder, for ``rtlab.Store``; returns the folder.

    It has the rows of all variants, and the whole results of one model: ``sample_models/README.md`` says which.

    Raises:
        ModelError: the file is not installed.
    """
    with tarfile.open(_folder() / "sweep.tar.xz") as archive:
        # Python before 3.10.12 and 3.11.4 has no filters.
        options: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
        archive.extractall(folder, **options)  # noqa: S202 - rtlab's own file
    return Path(folder)


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


#: The characters that the decoder reads and writes, by their id.
_CHARACTERS = ("\n", *map(chr, range(ord(" "), ord("~") + 1)))


def _load_characters(samples: int | None) -> Sample:
    """Windows of a text: the model reads all characters but the last, and the labels are all but the first."""
    with np.load(_folder() / "characters.npz", allow_pickle=False) as archive:
        calibration_ids, test_ids = (archive[k].astype(np.int64) for k in ("calibration_ids", "test_ids"))
    calibration = CalibrationData(
        {"input_ids": calibration_ids[:samples, :-1]}, source="rtlab's documentation, every third paragraph"
    )
    others = CalibrationData({"input_ids": test_ids[:, :-1]}, source="rtlab's documentation, the others")
    task = Task(others, test_ids[:, 1:], metric="perplexity", vocabulary=_CHARACTERS)
    return Sample("characters", load_model(_folder() / "characters.onnx"), calibration, task)


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
    draw: Callable[[int], NDArray[Any] | Mapping[str, NDArray[Any]]],
    source: str = "1/f noise pictures",
) -> Sample:
    """A model of random weights with random samples, by name where it has several inputs."""
    model = make()
    drawn = draw(samples or UNTRAINED)
    arrays = drawn if isinstance(drawn, Mapping) else {model.inputs[0]: drawn}
    return Sample(model.name, model, CalibrationData(arrays, source=source, synthetic=True))


def _generate_for_noise(samples: int | None, *, make: Callable[[], Model]) -> Sample:
    """A model of random weights with normal noise as its data."""
    model = make()
    return Sample(model.name, model, CalibrationData.random(model, samples=samples or UNTRAINED))


_PICTURES = functools.partial(pictures, size=224)
_SAMPLES: dict[str, Callable[[int | None], Sample]] = {
    **{name: functools.partial(_load_digits, name=name) for name in NETWORKS},
    "sentences": _load_sentences,
    "characters": _load_characters,
    "googlenet": functools.partial(_generate, make=googlenet, draw=_PICTURES),
    "resnet50": functools.partial(_generate, make=resnet50, draw=_PICTURES),
    "mobilenet_v2": functools.partial(_generate, make=mobilenet_v2, draw=_PICTURES),
    "csp_detector": functools.partial(
        _generate, make=csp_detector, draw=functools.partial(pictures, size=256)
    ),
    "bert": functools.partial(_generate, make=bert, draw=sentences, source="random words"),
    "decoder_with_cache": functools.partial(
        _generate, make=decoder_with_cache, draw=draw_prompts, source="random words"
    ),
    **{
        make.__name__: functools.partial(_generate_for_noise, make=make)
        for make in (unet_block, whisper_encoder, mixture_of_experts)
    },
    "dynamic_shapes": functools.partial(_load_trait, name="dynamic_shapes", shapes={"length": 24}),
    "control_flow": functools.partial(_load_trait, name="control_flow"),
    "hostile_names": functools.partial(_load_trait, name="hostile_names"),
}
