"""A folder of pictures as one array that is read piece by piece."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from rtlab.core.lazy import LazyArray
from rtlab.core.optional import require
from rtlab.core.phrases import quote_names
from rtlab.errors import CalibrationError

if TYPE_CHECKING:
    from types import ModuleType

    from numpy.typing import NDArray

_MODES = {"RGB": "RGB", "BGR": "RGB", "gray": "L"}
#: What Pillow knows by name and decodes not at all, or (EPS) by a program that runs what the file says.
_NO_PICTURES = {"BUFR", "EPS", "GRIB", "HDF5", "MPEG", "PALM", "PDF", "WMF"}
#: Pixels of a picture that is scaled before a part of it is cut out.
_MOST = 1 << 28


@dataclasses.dataclass(frozen=True)
class Preprocessing:
    """How a picture becomes a model's input: ``(pixel * scale - mean) / std``.

    Pixels are taken as they are stored, as torchvision takes them: a camera's note of how it was held (EXIF) turns
    nothing. Of several frames the first counts; of 16 bits of a pixel the upper 8.

    Args:
        size: Height and width of the input, in pixels.
        resize: Length in pixels that the shorter side is brought to (bilinear, with antialiasing) before
            ``size`` is cut from the centre. None scales both sides to ``size``, whatever the proportions.
        scale: Factor on pixel values, which are 0 to 255.
        mean: Subtracted after scaling; one number, or one per channel in the order of ``channels``.
        std: Divided by after that, in the same form.
        channels: ``RGB``, ``BGR``, or ``gray`` for one channel.
        layout: ``NCHW``, or ``NHWC`` with channels last.
        dtype: NumPy's name of the input's type.

    Raises:
        CalibrationError: a setting cannot be.
    """

    size: tuple[int, int] = (224, 224)
    resize: int | None = None
    mean: float | Sequence[float] = 0.0
    std: float | Sequence[float] = 1.0
    scale: float = 1 / 255
    channels: Literal["RGB", "BGR", "gray"] = "RGB"
    layout: Literal["NCHW", "NHWC"] = "NCHW"
    dtype: str = "float32"

    def __post_init__(self) -> None:
        for name, options in (("channels", tuple(_MODES)), ("layout", ("NCHW", "NHWC"))):
            if (choice := getattr(self, name)) not in options:
                reason = f'{name} "{choice}" is not known'
                raise _preprocessing_error(reason, f"Choose one of {quote_names(options)}")
        if len(self.size) != 2 or min(self.size) < 1:
            reason = f"size {self.size} is no height and width"
            raise _preprocessing_error(reason, "Give two positive numbers of pixels")
        if self.resize is not None and self.resize < max(self.size):
            raise _preprocessing_error(
                f"resize {self.resize} is smaller than the size {self.size} that is cut from it",
                f"Give at least {max(self.size)}, or None to scale to the size directly",
            )
        count = 1 if self.channels == "gray" else 3
        for name in ("mean", "std"):
            factors = np.asarray(getattr(self, name), np.float64)
            if factors.shape not in {(), (count,)} or not np.isfinite(factors).all():
                reason = f"{name} {getattr(self, name)} does not fit"
                raise _preprocessing_error(reason, f"Give {count} finite numbers")
            object.__setattr__(self, name, tuple(factors.tolist()) if factors.ndim else float(factors))
        if not np.all(np.asarray(self.std)) or not math.isfinite(self.scale):
            reason = "std is zero or scale is not finite"
            raise _preprocessing_error(reason, "Give factors that keep the pixels")

    @property
    def shape(self) -> tuple[int, int, int]:
        """Shape of one prepared picture."""
        count = 1 if self.channels == "gray" else 3
        return (count, *self.size) if self.layout == "NCHW" else (*self.size, count)

    def apply(self, picture: Any) -> NDArray[Any]:
        """Prepare one ``PIL.Image``; the result has the shape ``shape``."""
        resampling = _import_pillow("prepare pictures").Resampling.BILINEAR
        height, width = self.size
        picture = _to_eight_bits(picture).convert(_MODES[self.channels])
        if self.resize is None:
            picture = picture.resize((width, height), resampling)
        else:
            short = min(picture.size)
            # The longer side is cut off to whole pixels, and the middle rounded, as torchvision does.
            w, h = (self.resize * side // short for side in picture.size)
            if w * h > _MOST:
                raise ValueError(
                    f"its sides of {picture.size[0]} and {picture.size[1]} pixels are too unlike to bring the shorter "
                    f"one to {self.resize}"
                )
            picture = picture.resize((w, h), resampling)
            x_offset, y_offset = round((w - width) / 2), round((h - height) / 2)
            picture = picture.crop((x_offset, y_offset, x_offset + width, y_offset + height))
        pixels = np.asarray(picture, np.float32).reshape(height, width, -1)
        if self.channels == "BGR":
            pixels = pixels[..., ::-1]
        mean, std = (np.asarray(factors, np.float32) for factors in (self.mean, self.std))
        tensor = (pixels * np.float32(self.scale) - mean) / std
        if self.layout == "NCHW":
            tensor = tensor.transpose(2, 0, 1)
        if np.dtype(self.dtype).kind in "iu":
            limits = np.iinfo(self.dtype)
            tensor = np.clip(np.rint(tensor), limits.min, limits.max)
        return np.ascontiguousarray(tensor, self.dtype)


class Images:
    """Pictures of a folder in the order of their names, which are decoded when they are asked for."""

    is_finite = is_portable = True

    def __init__(self, files: Sequence[Path], preprocessing: Preprocessing) -> None:
        self.files = tuple(files)
        self.preprocessing = preprocessing
        self.shape = (len(self.files), *preprocessing.shape)
        self.dtype = np.dtype(preprocessing.dtype)

    def read(self, rows: range) -> NDArray[Any]:
        """Decode these pictures; raises ``CalibrationError`` with the name of a file that cannot be decoded."""
        pictures = np.empty((len(rows), *self.shape[1:]), self.dtype)
        for i, row in enumerate(rows):
            pictures[i] = self._read(self.files[row])
        return pictures

    def _read(self, file: Path) -> NDArray[Any]:
        image = _import_pillow(f'read "{file}"')
        try:
            image.init()
            with image.open(file, formats=[k for k in image.OPEN if k not in _NO_PICTURES]) as picture:
                return self.preprocessing.apply(picture)
        except Exception as error:
            raise CalibrationError(
                f'Cannot read picture "{file}": {_describe_error(error)}. Remove it from the folder, or save it again.',
                details=repr(error),
            ) from error


def open_pictures(folder: str | Path, preprocessing: Preprocessing) -> LazyArray:
    """All pictures in a folder and the folders in it; files of other kinds and hidden ones are passed over.

    Raises:
        CalibrationError: there is no picture.
        Unavailable: Pillow is not installed.
    """
    image = _import_pillow(f'read the pictures in "{folder}"')
    suffixes = {e for e, kind in image.registered_extensions().items() if kind not in _NO_PICTURES}
    root = Path(folder)
    paths = [
        p
        for p in root.rglob("*")
        if p.suffix.lower() in suffixes
        and not any(part.startswith(".") for part in p.relative_to(root).parts)
        and p.is_file()
    ]
    if not paths:
        raise CalibrationError(
            f'Cannot read pictures from "{folder}": it holds no file of a kind that Pillow reads. '
            "Name a folder of pictures, such as .png or .jpg files."
        )
    files = sorted(paths, key=lambda p: p.relative_to(root).as_posix())
    return LazyArray(Images(files, preprocessing))


def _to_eight_bits(picture: Any) -> Any:
    """A picture of one channel with more than 8 bits, which Pillow would turn white, as it turns those of three."""
    sixteen = picture.mode.startswith("I;16") or (picture.mode == "I" and picture.format == "PNG")
    if sixteen:
        return _import_pillow("read pictures").fromarray((np.asarray(picture) >> 8).astype(np.uint8))
    if picture.mode in {"I", "F"}:
        raise ValueError("its pixels are numbers of 32 bits, and nothing says which of them is white")
    return picture


def _describe_error(error: Exception) -> str:
    """What is wrong with a picture: Pillow names the file once more, and MemoryError says nothing."""
    name = type(error).__name__
    if name == "UnidentifiedImageError":
        return "it is empty, or no picture of a kind that Pillow reads"
    if isinstance(error, MemoryError):
        return "there is not enough memory for its pixels"
    return str(error).rstrip(".") or name


def _import_pillow(why: str) -> ModuleType:
    require("pillow", why=why)
    # The package alone brings none of its modules.
    from PIL import Image

    return Image


def _preprocessing_error(reason: str, remedy: str) -> CalibrationError:
    return CalibrationError(f"Cannot prepare pictures: {reason}. {remedy}.")
