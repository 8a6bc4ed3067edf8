"""Folders of pictures as samples."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from rtlab.core.optional import require
from rtlab.core.phrases import quote_names
from rtlab.errors import CalibrationError

if TYPE_CHECKING:
    from types import ModuleType

    from numpy.typing import NDArray

_MODES = {"RGB": "RGB", "BGR": "RGB", "gray": "L"}
#: Formats that Pillow cannot decode, or (EPS) decodes by a program that executes the file.
_NO_PICTURES = {"BUFR", "EPS", "GRIB", "HDF5", "MPEG", "PALM", "PDF", "WMF"}


@dataclasses.dataclass(frozen=True)
class Preprocessing:
    """How a picture becomes a model's input: ``(pixel * scale - mean) / std``.

    Pixels are taken as they are stored, as in torchvision: EXIF orientation is ignored. Of several frames the first is
    used, of 16 bits of a pixel the upper 8.

    Args:
        size: Height and width of the input, in pixels.
        resize: Length in pixels that the shorter side is brought to (bilinear, with antialiasing) before
            ``size`` is cut from the centre. None scales both sides to ``size``, whatever the proportions.
        scale: Factor on pixel values, which are 0 to 255.
        mean, std: Subtracted after scaling, and divided by; one number, or one per channel.
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
        def check(fits: bool, reason: str, remedy: str) -> None:  # noqa: FBT001 - a condition
            if not fits:
                raise CalibrationError(f"Cannot prepare pictures: {reason}. {remedy}.")

        for name, options in (("channels", tuple(_MODES)), ("layout", ("NCHW", "NHWC"))):
            choice = getattr(self, name)
            check(
                choice in options, f'{name} "{choice}" is not known', f"Choose one of {quote_names(options)}"
            )
        is_size = len(self.size) == 2 and min(self.size) > 0
        check(is_size, f"size {self.size} is no height and width", "Give two positive numbers of pixels")
        check(
            self.resize is None or self.resize >= max(self.size),
            f"resize {self.resize} is smaller than the size {self.size} that is cut from it",
            f"Give at least {max(self.size)}, or None to scale to the size directly",
        )
        count = 1 if self.channels == "gray" else 3
        for name in ("mean", "std"):
            factors = np.asarray(getattr(self, name), np.float64)
            fits = factors.shape in {(), (count,)} and bool(np.isfinite(factors).all())
            check(fits, f"{name} {getattr(self, name)} does not fit", f"Give {count} finite numbers")
            object.__setattr__(self, name, tuple(factors.tolist()) if factors.ndim else float(factors))
        keeps = bool(np.all(np.asarray(self.std))) and math.isfinite(self.scale)
        check(keeps, "std is zero or scale is not finite", "Give factors that keep the pixels")

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


class Pictures:
    """Pictures as an array of samples, which are decoded when they are read.

    Other attributes of an array decode all of them.
    """

    def __init__(self, files: Sequence[Path], preprocessing: Preprocessing) -> None:
        self.files = tuple(files)
        self.preprocessing = preprocessing
        self.shape = (len(self.files), *preprocessing.shape)
        self.ndim = len(self.shape)
        self.dtype = np.dtype(preprocessing.dtype)

    def __len__(self) -> int:
        return len(self.files)

    def __repr__(self) -> str:
        return f"<Pictures {self.shape} {self.dtype}>"

    def part(self, first: int, last: int) -> Pictures:
        """Pictures from one up to another, not decoded yet."""
        return Pictures(self.files[first:last], self.preprocessing)

    def __array__(self, dtype: Any = None, *, copy: bool | None = None) -> NDArray[Any]:
        """Decode all; raises ``CalibrationError`` with the name of a file that cannot be decoded."""
        samples = np.empty(self.shape, self.dtype)
        for i, file in enumerate(self.files):
            samples[i] = self._read(file)
        return samples if dtype is None else samples.astype(dtype, copy=False)

    def __getattr__(self, name: str) -> Any:
        """An attribute of the array."""
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(np.asarray(self), name)

    def __getitem__(self, key: Any) -> Any:
        """NumPy's indexing; a picture or a slice of pictures decodes those alone."""
        if isinstance(key, slice):
            return np.asarray(Pictures(self.files[key], self.preprocessing))
        if isinstance(key, int | np.integer) and not isinstance(key, bool):
            return self._read(self.files[key])
        return np.asarray(self)[key]

    def _read(self, file: Path) -> NDArray[Any]:
        image = _import_pillow(f'read "{file}"')
        try:
            image.init()
            with image.open(file, formats=[k for k in image.OPEN if k not in _NO_PICTURES]) as picture:
                return self.preprocessing.apply(picture)
        except Exception as error:
            raise CalibrationError(
                f'Cannot read picture "{file}": {str(error).rstrip(".") or type(error).__name__}. Remove it from the '
                "folder, or save it again.",
                details=repr(error),
            ) from error


def open_pictures(folder: str | Path, preprocessing: Preprocessing) -> Pictures:
    """All pictures in a folder and the folders in it; files of other kinds and hidden ones are passed over.

    Raises:
        CalibrationError: there is no picture.
        Unavailable: Pillow is not installed.
    """
    image = _import_pillow(f'read the pictures in "{folder}"')
    suffixes = {e for e, kind in image.registered_extensions().items() if kind not in _NO_PICTURES}
    root = Path(folder)
    paths = (p.relative_to(root) for p in root.rglob("*") if p.suffix.lower() in suffixes and p.is_file())
    files = sorted((p for p in paths if not any(part[0] == "." for part in p.parts)), key=Path.as_posix)
    if not files:
        raise CalibrationError(
            f'Cannot read pictures from "{folder}": it holds no file of a kind that Pillow reads. '
            "Name a folder of pictures, such as .png or .jpg files."
        )
    return Pictures([root / file for file in files], preprocessing)


def _to_eight_bits(picture: Any) -> Any:
    """A picture of one channel with more than 8 bits, which Pillow would turn white, as it turns those of three."""
    sixteen = picture.mode.startswith("I;16") or (picture.mode == "I" and picture.format == "PNG")
    if sixteen:
        return _import_pillow("read pictures").fromarray((np.asarray(picture) >> 8).astype(np.uint8))
    if picture.mode in {"I", "F"}:
        raise ValueError("its pixels are numbers of 32 bits, and nothing says which of them is white")
    return picture


def _import_pillow(why: str) -> ModuleType:
    require("pillow", why=why)
    # The package alone brings none of its modules.
    from PIL import Image

    return Image
