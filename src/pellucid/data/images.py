"""Every picture file becomes (h, w, 3) uint8 RGB by one set of rules.

EXIF orientation is applied once; alpha is dropped; grey is repeated; 16-bit samples keep their high byte; palette, CMYK and
bilevel pictures are converted. One antialiased resize serves training, validation and prediction.
"""

from __future__ import annotations

import io
import os
import stat
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from PIL import (  # noqa: F401
    BmpImagePlugin,
    Image,
    ImageSequence,
    JpegImagePlugin,
    PngImagePlugin,
    TiffImagePlugin,
    UnidentifiedImageError,
    WebPImagePlugin,
)
from torch.nn.functional import interpolate

from ..errors import DataError, MissingFileError
from ..geometry import Letterbox
from ..geometry.affine import fit_longest

READER_VERSION = 3  # part of the cache's keys: raise it when read_image or resize_longest change a pixel
SUFFIXES = (".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".bmp", ".tif", ".tiff")
FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "TIFF")  # a multi-picture JPEG gives its first picture
FILL = 114  # grey of what no picture covers
_ORIENTATION = 0x0112
_PHOTOMETRIC, _WHITE_IS_ZERO = 262, 0
_KIND_OF_PAGE, _NO_PICTURE = 254, 0b101  # a smaller copy of another page, or a mask
_TAIL = 2048  # bytes at the end in which the end mark of a whole file lies
_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}

Source = str | Path | bytes | np.ndarray | Image.Image


@dataclass(frozen=True)
class Header:
    """What a file says before its pixels are decoded."""

    height: int  # as displayed, after EXIF orientation
    width: int
    orientation: int  # EXIF, 1 to 8
    pages: int = 1  # full pictures in the file, of which the first is read

    @property
    def size(self) -> tuple[int, int]:
        return self.height, self.width

    @property
    def stored(self) -> tuple[int, int]:
        """(height, width) before EXIF orientation."""
        return (self.width, self.height) if self.orientation >= 5 else (self.height, self.width)


def read_image(source: Source) -> np.ndarray:
    """Pixels (h, w, 3) uint8 RGB of a file, its bytes, an RGB array or a PIL image; DataError names what cannot be read."""
    return read_first(source)[0]


def read_first(source: Source) -> tuple[np.ndarray, int]:
    """As `read_image`, and how many full pictures there are, of which this is the first: more than 1 in a TIFF of several pages alone."""
    if isinstance(source, np.ndarray):
        return _from_array(source), 1
    if isinstance(source, Image.Image):
        return _guarded("PIL image", lambda: _loaded(source)), 1
    if isinstance(source, bytes):
        if not source:
            raise DataError("expected an encoded picture, got 0 bytes; give the whole content of a file.")
        return _decode(io.BytesIO(source), f"picture of {len(source)} bytes")
    with _opened(source) as file:
        return _decode(file, os.fspath(source))


def unique_name(name: Path, taken: set[Path]) -> Path:
    """`name`, numbered if one of the same stem was taken, and noted in `taken`: label files drop the suffix."""
    free, number = name, 1
    while free.with_suffix("") in taken:
        number += 1
        free = name.with_name(f"{name.stem}-{number}{name.suffix}")
    taken.add(free.with_suffix(""))
    return free


def read_header(path: str | Path, complete: bool = False) -> Header:
    """Size and orientation from the header alone; `complete` also decodes a file that looks cut off, and raises if it is."""
    with _opened(path) as file:
        header, kind = _guarded(os.fspath(path), lambda: _header(file))
        if complete and not _has_end(file, kind):
            file.seek(0)
            _decode(file, os.fspath(path))
    return header


def image_size(path: str | Path) -> tuple[int, int]:
    """(height, width) after EXIF orientation, from the header alone."""
    return read_header(path).size


def resize_longest(image: np.ndarray, size: int) -> np.ndarray:
    """`image` resized so that its longer side is `size`: bilinear, antialiased where it shrinks; the same array if nothing changes."""
    height, width = fit_longest(image.shape[0], image.shape[1], size)
    if (height, width) == image.shape[:2]:
        return image
    pixels = torch.from_numpy(np.require(image, requirements=("C", "W")))[None].permute(0, 3, 1, 2)
    resized = interpolate(pixels, (height, width), mode="bilinear", antialias=True)  # Pillow's to one grey level, in a fraction of its time
    return np.ascontiguousarray(resized[0].permute(1, 2, 0).numpy())


def letterbox(image: np.ndarray, size: int) -> tuple[np.ndarray, Letterbox]:
    """`image` resized and centred on a grey (size, size, 3) canvas, and where it was put."""
    box = Letterbox.fit(image.shape[0], image.shape[1], size)
    canvas = np.full((size, size, 3), FILL, np.uint8)
    canvas[box.top : box.top + box.new_height, box.left : box.left + box.new_width] = resize_longest(image, size)
    return canvas, box


def _opened(path: str | Path) -> BinaryIO:
    try:
        file = open(path, "rb")  # noqa: SIM115
    except FileNotFoundError:
        raise MissingFileError(f"{path}: expected a picture, but there is no such file; check the path.") from None
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: expected a picture that can be opened ({error}); check its permissions.") from None
    state = os.fstat(file.fileno())
    if not state.st_size and stat.S_ISREG(state.st_mode):
        file.close()
        raise DataError(f"{path}: expected a picture, got an empty file; replace or remove it.")
    return file


def _guarded(name: str, work):
    """Decoders raise nearly anything on broken input: all of it becomes one sentence that names the file."""
    try:
        return work()
    except DataError as error:
        raise DataError(f"{name}: {error}") from None
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise DataError(f"{name}: the picture claims more pixels than is safe to decode; cut it into tiles.") from None
    except UnidentifiedImageError:
        raise DataError(f"{name}: expected a JPEG, PNG, WebP, BMP or TIFF picture, found something else; replace it.") from None
    except Exception as error:
        reason = str(error).splitlines()[0][:120] if str(error) else type(error).__name__
        raise DataError(f"{name}: the picture is broken ({reason}); replace or remove it.") from None


def _decode(file: BinaryIO, name: str) -> tuple[np.ndarray, int]:
    def work() -> tuple[np.ndarray, int]:
        with Image.open(file, formats=FORMATS) as image:
            return _loaded(image), _page_count(image)

    return _guarded(name, work)


def _loaded(image: Image.Image) -> np.ndarray:
    image.load()  # a TIFF turns itself upright here
    return _to_rgb(upright(image))


def _header(file: BinaryIO) -> tuple[Header, str]:
    with Image.open(file, formats=FORMATS) as image:
        (width, height), kind, orientation = image.size, image.format or "", 1
        if kind != "PNG" or _png_ends(file):
            orientation = _orientation(image, Image.Image.getexif)
        else:
            orientation = _orientation(image)
        if orientation >= 5 and kind != "TIFF":  # a TIFF gives its upright size
            width, height = height, width
        return Header(height, width, orientation, _page_count(image)), kind


def _page_count(image: Image.Image) -> int:
    """Full pictures in an open TIFF, which is left at some page of it, to the first broken one, which counts; 1 for all else."""
    if image.format != "TIFF" or not getattr(image, "is_animated", False):
        return 1
    kinds: list[int] = []
    try:
        for frame in ImageSequence.Iterator(image):
            kinds.append(frame.tag_v2.get(_KIND_OF_PAGE, 0))  # type: ignore[attr-defined]  # noqa: PERF401
    except Exception:  # of whatever decoders raise
        kinds.append(0)
    return max(1, sum(not kind & _NO_PICTURE for kind in kinds))


def _has_end(file: BinaryIO, kind: str) -> bool:
    length = file.seek(0, os.SEEK_END)
    file.seek(max(0, length - _TAIL))
    tail = file.read(_TAIL)
    if kind in ("JPEG", "MPO"):
        return b"\xff\xd9" in tail
    if kind == "PNG":
        return b"IEND" in tail
    if kind == "WEBP":
        file.seek(4)
        return int.from_bytes(file.read(4), "little") + 8 <= length
    return kind == "TIFF"  # a BMP has no end mark: decode it


def _png_ends(file: BinaryIO) -> bool:
    """Whether the end mark follows the pixels at once; else Pillow must decode them to see the EXIF block behind."""
    file.seek(8)
    pixels = False
    while len(head := file.read(8)) == 8:
        length, kind = struct.unpack(">I4s", head)
        if pixels and kind != b"IDAT":
            return kind == b"IEND"
        pixels = kind == b"IDAT"
        file.seek(length + 4, os.SEEK_CUR)
    return False


def _orientation(image: Image.Image, read: Callable[[Any], Any] = lambda image: image.getexif()) -> int:
    try:
        value = read(image).get(_ORIENTATION, 1)
    except Exception:  # a broken EXIF block says nothing; the pixels may be well
        return 1
    return value if value in _UPRIGHT else 1


def upright(image: Image.Image) -> Image.Image:
    method = _UPRIGHT.get(_orientation(image))
    return image if method is None else image.transpose(method)


def _to_rgb(image: Image.Image) -> np.ndarray:
    if min(image.size) < 1:
        raise DataError("the picture has no pixels; replace it.")
    if image.mode.startswith("I;16"):
        samples = np.asarray(image.convert("I")).astype(np.uint16)
        return _from_array(~samples if _white_is_zero(image) else samples)
    if image.mode == "I" and image.format == "PNG":  # a 16-bit PNG under older Pillow
        return _from_array(np.asarray(image).astype(np.uint16))
    if image.mode in ("I", "F"):
        raise DataError("samples of 32 bits have no stated range; convert the picture to 8 or 16 bits.")
    if image.mode == "P" and "transparency" in image.info:
        image = image.convert("RGBA")
    return np.array(image if image.mode == "RGB" else image.convert("RGB"))


def _white_is_zero(image: Image.Image) -> bool:
    """Whether a TIFF of 16 bits counts from white to black: Pillow turns samples of up to 8 bits over itself, but not these."""
    tags = getattr(image, "tag_v2", {})
    return image.format == "TIFF" and tags.get(_PHOTOMETRIC) == _WHITE_IS_ZERO


def _from_array(array: np.ndarray) -> np.ndarray:
    if array.ndim == 2:
        array = array[..., None]
    if array.ndim != 3 or not 1 <= array.shape[2] <= 4 or 0 in array.shape:
        raise DataError(f"expected an image array of shape (h, w) or (h, w, 1 to 4), got {array.shape}; put channels last.")
    array = _to_uint8(array[..., :1] if array.shape[2] <= 2 else array[..., :3])
    if array.shape[2] == 1:
        return np.repeat(array, 3, axis=2)
    return np.ascontiguousarray(array)


def _to_uint8(array: np.ndarray) -> np.ndarray:
    if array.dtype == np.uint8:
        return array
    if array.dtype == np.uint16:
        return (array >> 8).astype(np.uint8)
    if array.dtype == np.bool_:
        return array.astype(np.uint8) * np.uint8(255)
    if array.dtype.kind == "f":
        low, high = array.min(), array.max()
        if low >= 0 and high <= 1:
            return np.round(array * 255).astype(np.uint8)
        advice = "divide it by 255 or convert it to uint8" if low >= 0 and high <= 255 else "scale it to [0, 1]"
        raise DataError(f"expected an image array of floats in [0, 1], got {array.dtype} from {low:g} to {high:g}; {advice}.")
    raise DataError(f"expected an image array of uint8, uint16, bool, or floats in [0, 1], got {array.dtype}; convert it first.")
