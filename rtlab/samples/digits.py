"""The trained samples: small networks that read scikit-learn's digits, each made to show one thing."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from rtlab.core.data import CalibrationData
from rtlab.core.task import Task

if TYPE_CHECKING:
    from numpy.typing import NDArray

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
