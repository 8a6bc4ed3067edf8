"""Folders of pictures: the preprocessing against an independent calculation, order, and damaged files."""

from __future__ import annotations

import dataclasses
import io
import pickle
import re
import struct
import zlib
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

from nets import passing
from rtlab.core.data import CalibrationData
from rtlab.core.images import Preprocessing, open_pictures
from rtlab.errors import CalibrationError

Image = pytest.importorskip("PIL.Image", reason="pictures need Pillow")

RNG = np.random.default_rng(0)


NET = passing(image=(TensorProto.FLOAT, ["N", 3, 8, 6]))


@pytest.fixture
def folder(tmp_path):
    """Three pictures of different sizes, one in a folder of its own, beside files that are none."""
    (tmp_path / "b").mkdir()
    (tmp_path / ".thumbs").mkdir()
    sizes = {"c.png": (20, 30), "b/z.bmp": (31, 17), "a.PNG": (8, 8), ".thumbs/d.png": (8, 8)}
    for name, size in sizes.items():
        Image.fromarray(RNG.integers(0, 256, (*size, 3), np.uint8)).save(tmp_path / name)
    (tmp_path / "labels.txt").write_text("no picture")
    return tmp_path


def test_pictures_come_in_the_order_of_their_names(folder):
    found = open_pictures(folder, Preprocessing(size=(8, 6)))
    assert ["a.PNG", "b/z.bmp", "c.png"] == [f.relative_to(folder).as_posix() for f in found.files]


def test_a_folder_is_data_for_a_model(folder):
    data = CalibrationData.of(folder, model=NET, preprocessing=Preprocessing(size=(8, 6)))
    data.check(NET)
    assert f'<CalibrationData 3 samples from pictures in "{folder.name}": image 3×3×8×6>' == repr(data)
    batches = [b["image"] for b in data.batches(NET, 2)]
    assert [(2, 3, 8, 6), (1, 3, 8, 6)] == [b.shape for b in batches]
    assert all(type(b) is np.ndarray and b.dtype == np.float32 for b in batches)
    np.testing.assert_array_equal(batches[0], next(data.take(2).batches(NET, 2))["image"])
    last = pickle.loads(pickle.dumps(data.part(2, 3)))
    np.testing.assert_array_equal(batches[1], next(last.batches(NET, 2))["image"])


def test_pixels_are_scaled_and_normalized_per_channel(folder):
    """Against the formula, written out: a wrong mean is the most frequent cause of a bad INT8 engine."""
    pixels = RNG.integers(0, 256, (8, 6, 3), np.uint8)
    Image.fromarray(pixels).save(folder / "0.png")
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    data = Preprocessing(size=(8, 6), mean=mean, std=std)
    (made, *_) = np.asarray(open_pictures(folder, data))
    for c in range(3):
        expected = (pixels[..., c] / 255.0 - mean[c]) / std[c]
        np.testing.assert_allclose(expected, made[c], atol=1e-6)
    bgr = np.asarray(open_pictures(folder, dataclasses.replace(data, channels="BGR", layout="NHWC")))[0]
    for c in range(3):
        expected = (pixels[..., 2 - c] / 255.0 - mean[c]) / std[c]
        np.testing.assert_allclose(expected, bgr[..., c], atol=1e-6)


def test_the_shorter_side_is_resized_and_the_centre_cut():
    wide = np.zeros((10, 40, 3), np.uint8)
    wide[:, 18:22] = 255
    made = Preprocessing(size=(4, 4), resize=10, scale=1).apply(Image.fromarray(wide))
    np.testing.assert_array_equal(np.full((3, 4, 4), 255, np.float32), made)
    tall = np.repeat(np.arange(0, 160, 4, dtype=np.uint8)[:, None], 20, axis=1)
    made = Preprocessing(size=(6, 6), resize=10, scale=1, channels="gray").apply(Image.fromarray(tall))
    assert (1, 6, 6) == made.shape
    # Halved: rows 7 to 12 of 20, each the mean of two around 4 * (2 * row + 0.5).
    np.testing.assert_allclose([4 * (2 * row + 0.5) for row in range(7, 13)], made[0, :, 0], atol=1)


def test_whole_numbers_are_rounded_and_kept_in_their_range(folder):
    made = Preprocessing(size=(8, 6), scale=2, dtype="uint8").apply(Image.new("RGB", (6, 8), (10, 100, 200)))
    assert [20, 200, 255] == made[:, 0, 0].tolist()
    quantized = passing(image=(TensorProto.UINT8, ["N", 3, 8, 6]))
    as_is = Preprocessing(size=(8, 6), scale=1, dtype="uint8")
    CalibrationData.of(folder, model=quantized, preprocessing=as_is).check(quantized)


def png(size: tuple[int, int], bits: int, color: int, rows: list[bytes]) -> bytes:
    """A PNG by hand: of any size that it claims, with 16 bits a channel too."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        ends = (struct.pack(">I", n) for n in (len(content), zlib.crc32(kind + content)))
        return (kind + content).join(ends)

    head = struct.pack(">IIBBBBB", *size, bits, color, 0, 0, 0)
    body = zlib.compress(b"".join(b"\0" + row for row in rows))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", body) + chunk(b"IEND", b"")


def encoded(kind: str, picture: Any, **more: Any) -> bytes:
    content = io.BytesIO()
    picture.save(content, kind, **more)
    return content.getvalue()


GREY, BLACK = Image.new("RGB", (20, 30), (100, 100, 100)), Image.new("RGB", (20, 30))
#: Files that people have among their pictures, each a grey of 100.
READ = {
    "a PNG called JPEG": ("a.jpg", encoded("PNG", GREY)),
    "CMYK": ("a.jpg", encoded("JPEG", Image.new("CMYK", (20, 30), (0, 0, 0, 155)))),
    "one channel of 16 bits": ("a.png", png((2, 3), 16, 0, [struct.pack(">HH", *[100 << 8] * 2)] * 3)),
    "three channels of 16 bits": (
        "a.png",
        png((2, 3), 16, 2, [struct.pack(">HHH", *[100 << 8] * 3) * 2] * 3),
    ),
    "one pixel": ("a.png", encoded("PNG", GREY.resize((1, 1)))),
    "a GIF that moves": ("a.gif", encoded("GIF", GREY, save_all=True, append_images=[BLACK, GREY])),
    "grey": ("a.png", encoded("PNG", GREY.convert("L"))),
    "grey with transparency": ("a.png", encoded("PNG", GREY.convert("LA"))),
    "transparent": ("a.png", encoded("PNG", Image.new("RGBA", (20, 30), (100, 100, 100, 0)))),
}


@pytest.mark.parametrize("kind", READ)
def test_every_picture_that_people_have_gives_the_pixels_that_it_shows(kind, tmp_path):
    """A grey of 100 of 255, however it is written: what is read wrongly shifts every scale without a word."""
    name, content = READ[kind]
    (tmp_path / name).write_bytes(content)
    (made,) = np.asarray(open_pictures(tmp_path, Preprocessing(size=(8, 6), resize=16, scale=1)))
    assert {100} == set(made.ravel().tolist())


def test_pixels_are_taken_as_they_are_stored(tmp_path):
    """As torchvision takes them: what a camera noted of how it was held (EXIF) turns nothing."""
    pixels = np.zeros((8, 6, 3), np.uint8)
    pixels[:4] = 255
    turned = Image.Exif()
    turned[0x0112] = 3
    Image.fromarray(pixels).save(tmp_path / "a.png", exif=turned)
    (made,) = np.asarray(open_pictures(tmp_path, Preprocessing(size=(8, 6), scale=1)))
    np.testing.assert_array_equal(pixels, made.transpose(1, 2, 0))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"channels": "rgb"}, 'channels "rgb"'), ({"layout": "CHW"}, 'layout "CHW"'),
        ({"size": (0, 8)}, "(0, 8)"), ({"resize": 200}, "resize 200"), ({"mean": (0.5, 0.5)}, "Give 3 finite"),
        ({"mean": (0.5, 0.5, 0.5), "channels": "gray"}, "Give 1 finite"), ({"mean": float("nan")}, "mean nan"),
        ({"std": (1, 0, 1)}, "std is zero"),
    ],
)  # fmt: skip
def test_a_preprocessing_that_cannot_be_is_refused(settings, said):
    with pytest.raises(CalibrationError, match=re.escape(said)):
        Preprocessing(**settings)


def test_without_resize_the_whole_picture_is_scaled():
    wide = np.zeros((10, 40, 3), np.uint8)
    wide[:, 20:] = 255
    made = Preprocessing(size=(4, 8), scale=1).apply(Image.fromarray(wide))
    assert (3, 4, 8) == made.shape
    assert [0, 255] == [made[0, 0, 0], made[0, 0, -1]]
