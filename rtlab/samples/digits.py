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

#: Title and description of every network, by the name of its file.
NETWORKS: Mapping[str, tuple[str, str]] = {
    "digits_inception": (
        "Handwritten digits, Inception",
        (
            "Two Inception blocks with batch normalisation and a residual, trained on scikit-learn's digits. "
            "Rarely inked pixels give its activations outliers, so INT8 calibrators differ visibly."
        ),
    ),
    "digits_outlier": (
        "Handwritten digits, outlier channels",
        (
            "Six depthwise-separable blocks. In five of them one channel fires at few positions and is then far larger "
            "than its neighbours: trained so, then exactly rescaled. Compare int8 with minmax, which spends its levels "
            "on those few elements and loses tens of points, and with entropy2 or percentile, which clip them and lose "
            "nearly nothing."
        ),
    ),
    "digits_mobilenet": (
        "Handwritten digits, MobileNetV2",
        (
            "Five inverted residuals as in MobileNetV2: 1x1 expansion, depthwise filter, linear projection, ReLU6 as "
            "Clip. See which of the normalisations, activations and residual additions go into the convolutions, and "
            "what the pairs of int8 change about that."
        ),
    ),
    "digits_dark": (
        "Handwritten digits, bytes on black",
        (
            "Pictures as files hold them, bytes over 255 with bright ink on black, read by three depthwise-separable "
            "blocks with squeeze-and-excitation gates. Compare int8 with auto and with entropy2, which clips nearly "
            "all of what enters the first gate: the values lie far from zero there."
        ),
    ),
    "digits_light": (
        "Handwritten digits, bytes on white",
        (
            "The network of digits_dark trained on black ink on white: a third of the pixels are the largest value "
            "there is. In int8 entropy2 loses two points and half of the output's decibels, auto one picture."
        ),
    ),
    "digits_vit": (
        "Handwritten digits, vision transformer",
        (
            "A vision transformer: 64 patches, two encoder blocks with LayerNormalization, attention as MatMul, "
            "Softmax, MatMul, and GELU in five nodes. See how a compiler gathers attention, and try bf16 and fp8 "
            "beside fp16 and int8."
        ),
    ),
    "digits_lstm": (
        "Handwritten digits, LSTM",
        (
            "An LSTM that reads a digit row by row: eight steps of eight pixels, 48 units. TensorRT-RTX unrolls all "
            "eight steps and computes the four gates of a step as one product: compare the layers of a step with the "
            "eight products and 17 elementwise operations that the definition asks for."
        ),
    ),
    "digits_gru": (
        "Handwritten digits, GRU",
        (
            "A GRU that reads a digit row by row: 32 steps of 32 pixels, 48 units. TensorRT-RTX multiplies the inputs "
            "of all steps at once, ahead of a loop that computes eight steps in each of four turns."
        ),
    ),
    "digits_qat": (
        "Handwritten digits, trained for INT8",
        (
            "A residual network trained with fake quantization and learned scales; its Q/DQ pairs stand where "
            "TensorRT wants them, its weights are FP32 ahead of theirs. Build it as it is (fp32): the arithmetic is "
            "INT8 already. The placement check finds nothing."
        ),
    ),
    "digits_qat_misplaced": (
        "Handwritten digits, misplaced Q/DQ",
        (
            "The network of digits_qat as ONNX Runtime's quantize_static writes it: pairs behind convolutions and "
            "additions and on the output, one shortcut left in FP32. The score is as good; run the placement check, "
            "repair what it finds, and compare the engines: one layer less, and no kernel rounds twice."
        ),
    ),
    "digits_sparse24": (
        "Handwritten digits, 2:4 sparse",
        (
            "A residual network pruned to 2:4 along its input channels and trained further: of every four "
            "neighbouring weights at least two are zero, everywhere but in the stem. Build it with sparsity to "
            "allow TensorRT's sparse kernels."
        ),
    ),
    "fp16_overflow": (
        "A sum that FP16 cannot hold",
        (
            "Trained like the others, but one node, /contrast/ReduceSum, adds 49,152 squares: more than 65,504, the "
            "end of FP16. In fp16 the network gives every picture the same answer; fp32 and bf16 are fine. Keep the "
            "nodes /contrast/* in fp32 to repair it."
        ),
    ),
}
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
