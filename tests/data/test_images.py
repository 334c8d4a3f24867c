"""read_image: every kind of file and array, EXIF once, broken files named."""

import io
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from pellucid.data.cache import layout
from pellucid.data.images import image_size, letterbox, read_header, read_image, resize_longest
from pellucid.errors import DataError, MissingFileError
from pellucid.geometry.affine import fit_longest

from .make import EXIF_ORIENTATION, picture

RNG = np.random.default_rng(0)
PHOTOMETRIC = 262
PIXELS = RNG.integers(0, 256, (24, 36, 3), dtype=np.uint8)


def retagged(path, tag, value):
    """Give a short tag of a TIFF in Intel order another value."""
    data = bytearray(path.read_bytes())
    at = data.index(struct.pack("<HHI", tag, 3, 1)) + 8
    data[at : at + 2] = struct.pack("<H", value)
    path.write_bytes(data)


def encoded(image, kind, **options):
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


@pytest.mark.parametrize(("kind", "options"), [("PNG", {}), ("BMP", {}), ("TIFF", {}), ("WEBP", {"lossless": True})])
def test_lossless_files_give_their_pixels(tmp_path, kind, options):
    path = tmp_path / f"a.{kind.lower()}"
    path.write_bytes(encoded(Image.fromarray(PIXELS), kind, **options))
    assert np.array_equal(read_image(path), PIXELS)
    assert np.array_equal(read_image(str(path)), PIXELS)
    assert np.array_equal(read_image(path.read_bytes()), PIXELS)
    assert image_size(path) == (24, 36)


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGBA", "CMYK", "YCbCr"])
def test_modes_equal_their_rgb_conversion(tmp_path, mode):
    image = Image.fromarray(PIXELS).convert("L").convert("LA") if mode == "LA" else Image.fromarray(PIXELS).convert(mode)
    expected = np.asarray(image.convert("RGB"))
    assert expected.std() > 10
    assert np.array_equal(read_image(image), expected)
    if mode not in ("CMYK", "YCbCr"):
        (tmp_path / "a.png").write_bytes(encoded(image, "PNG"))
        assert np.array_equal(read_image(tmp_path / "a.png"), expected)


def test_cmyk_jpeg_keeps_its_colour():
    red = Image.new("RGB", (32, 32), (255, 0, 0)).convert("CMYK")
    assert np.abs(read_image(encoded(red, "JPEG", quality=95)).astype(int) - (255, 0, 0)).max() < 12


def test_alpha_is_dropped_not_blended():
    image = np.dstack((PIXELS, np.zeros((24, 36), np.uint8)))
    assert np.array_equal(read_image(Image.fromarray(image)), PIXELS)
    assert np.array_equal(read_image(image), PIXELS)
    palette = Image.new("P", (4, 4), 1)
    palette.putpalette([0, 0, 0, 10, 200, 30])
    assert read_image(encoded(palette, "PNG", transparency=bytes([255, 0])))[0, 0].tolist() == [10, 200, 30]


@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
def test_sixteen_bits_keep_their_high_byte(kind):
    wide = (PIXELS[..., 0].astype(np.uint16) << 8) | 77
    from_file = read_image(encoded(Image.fromarray(wide), kind))
    assert np.array_equal(from_file, np.repeat(PIXELS[..., :1], 3, 2))
    assert np.array_equal(read_image(wide), from_file)


@pytest.mark.parametrize("compression", [None, "tiff_lzw"])
@pytest.mark.parametrize("orientation", [1, 6])
@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("white", [0, 1])
def test_what_a_tiff_calls_white_is_white(tmp_path, white, bits, orientation, compression):
    """The tag says what 0 is, white (0) or black (1): pictures of one scene read alike."""
    grey = PIXELS[..., 0] if white else 255 - PIXELS[..., 0]
    stored = Image.fromarray(grey if bits == 8 else grey.astype(np.uint16) * 257)
    path = tmp_path / "a.tif"
    path.write_bytes(encoded(stored, "TIFF", tiffinfo={PHOTOMETRIC: 1, EXIF_ORIENTATION: orientation}, compression=compression))
    retagged(path, PHOTOMETRIC, white)
    expected = np.repeat(PIXELS[..., :1] if orientation == 1 else np.rot90(PIXELS[..., :1], 3), 3, 2)
    with Image.open(io.BytesIO(path.read_bytes())) as image:
        assert image.tag_v2[PHOTOMETRIC] == white
        assert image.mode == ("L" if bits == 8 else "I;16")
        assert np.array_equal(read_image(image), expected)
    assert np.array_equal(read_image(path), expected)


def test_arrays_of_every_depth():
    grey = PIXELS[..., :1]
    for array in (grey[..., 0], grey, np.dstack((grey, grey * 0))):
        assert np.array_equal(read_image(array), np.repeat(grey, 3, 2))
    assert np.array_equal(read_image(PIXELS / 255), PIXELS)
    assert read_image(np.eye(3, dtype=bool)).max() == 255


@pytest.mark.parametrize(
    "bad", [np.zeros((2, 2, 5), np.uint8), np.zeros(4), np.zeros((0, 3, 3)), np.full((2, 2), 7.0), np.zeros((2, 2), "U1")]
)
def test_arrays_that_are_no_pictures(bad):
    with pytest.raises(DataError, match="expected an image array"):
        read_image(bad)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["PNG", "TIFF", "WEBP", "JPEG"])
def test_orientation_is_applied_once(tmp_path, orientation, kind):
    blocks = np.repeat(np.repeat(RNG.integers(0, 256, (3, 4, 3), dtype=np.uint8), 16, 0), 16, 1)
    exif = Image.Exif()
    exif[EXIF_ORIENTATION] = orientation
    stored = Image.fromarray(blocks)
    path = tmp_path / f"a.{kind.lower()}"
    path.write_bytes(encoded(stored, kind, exif=exif, **({"lossless": True} if kind == "WEBP" else {})))
    turns = {1: 0, 2: 0, 3: 2, 4: 2, 5: 3, 6: 3, 7: 1, 8: 1}
    expected = np.rot90(blocks, turns[orientation])
    if orientation in (2, 4, 5, 7):
        expected = expected[:, ::-1]
    image = read_image(path)
    assert image.shape[:2] == image_size(path) == expected.shape[:2]
    assert read_header(path).orientation == orientation
    assert np.abs(image.astype(int) - expected)[8::16, 8::16].max() <= (10 if kind == "JPEG" else 0)
    with Image.open(path) as opened:
        assert np.array_equal(read_image(opened), image)


def test_png_exif_behind_the_pixels(tmp_path):
    data = picture(tmp_path / "a.png", orientation=6).read_bytes()
    at = data.index(b"eXIf") - 4
    length = int.from_bytes(data[at : at + 4], "big") + 12
    end = data.index(b"IEND") - 4
    moved = data[:at] + data[at + length : end] + data[at : at + length] + data[end:]
    (tmp_path / "b.png").write_bytes(moved)
    assert image_size(tmp_path / "b.png") == image_size(tmp_path / "a.png") == read_image(tmp_path / "b.png").shape[:2] == (60, 40)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "BMP", "TIFF"])
def test_broken_files_are_named(tmp_path, kind):
    whole = encoded(Image.fromarray(RNG.integers(0, 256, (90, 90, 3), dtype=np.uint8)), kind)
    assert len(whole) > 4096
    for i, content in enumerate((b"", b"hello", whole[:10], whole[: len(whole) // 2])):
        path = tmp_path / f"cut{i}.img"
        path.write_bytes(content)
        with pytest.raises(DataError, match=f"cut{i}.img"):
            read_image(path)
        if kind != "TIFF" or i < 3:
            with pytest.raises(DataError, match=f"cut{i}.img"):
                read_header(path, complete=True)


def test_trailing_bytes_do_no_harm(tmp_path):
    path = picture(tmp_path / "a.jpg")
    path.write_bytes(path.read_bytes() + b"x" * 5000)
    assert read_header(path, complete=True).size == (40, 60)


@pytest.mark.filterwarnings("ignore:Corrupt EXIF")
@settings(max_examples=150, deadline=None)
@given(st.sampled_from(["PNG", "JPEG", "WEBP", "BMP", "TIFF"]), st.data())
def test_damaged_bytes_give_a_picture_or_a_data_error(kind, data):
    content = bytearray(encoded(Image.fromarray(PIXELS), kind))
    for _ in range(data.draw(st.integers(1, 6))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    try:
        image = read_image(bytes(content))
    except DataError:
        return
    assert image.dtype == np.uint8
    assert image.shape[2] == 3


def test_missing_and_odd_paths(tmp_path):
    with pytest.raises(MissingFileError, match=r"no\.jpg"):
        read_image(tmp_path / "no.jpg")
    with pytest.raises(DataError, match="expected a picture"):
        read_image(tmp_path)
    with pytest.raises(DataError, match="expected a picture"):
        read_image("a\0b.jpg")


def test_bomb_is_refused(tmp_path, monkeypatch):
    path = picture(tmp_path / "big.png", 300, 300)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    with pytest.raises(DataError, match=r"big\.png.*more pixels"):
        read_image(path)
    with pytest.raises(DataError, match=r"big\.png.*more pixels"):
        read_header(path)


def test_resize_is_antialiased_and_identity_is_free():
    stripes = np.zeros((64, 64, 3), np.uint8)
    stripes[:, ::2] = 255
    assert np.ptp(resize_longest(stripes, 16).astype(int)) < 30
    assert resize_longest(stripes, 64) is stripes
    assert resize_longest(PIXELS, 72).shape == (48, 72, 3)


@pytest.mark.parametrize("shape", [(400, 400), (300, 900), (37, 10), (1, 50), (700, 1), (33, 64)])
@pytest.mark.parametrize("size", [64, 640])
def test_a_resized_picture_is_pillows_to_one_grey_level(shape, size):
    image = RNG.integers(0, 256, (*shape, 3), dtype=np.uint8)
    height, width = fit_longest(*shape, size)
    theirs = np.asarray(Image.fromarray(image).resize((width, height), Image.Resampling.BILINEAR))
    ours = resize_longest(image, size)
    assert ours.flags.c_contiguous
    assert ours.shape == (height, width, 3)
    assert np.abs(ours.astype(int) - theirs.astype(int)).max() <= 1
    fixed = image.copy()
    fixed.flags.writeable = False
    mirrored = np.ascontiguousarray(image[:, ::-1])[:, ::-1]  # strides that run backwards
    assert np.array_equal(resize_longest(fixed, size), ours)
    assert np.array_equal(resize_longest(mirrored, size), ours)


def test_letterbox_places_the_resized_picture():
    canvas, box = letterbox(PIXELS, 96)
    inner = canvas[box.top : box.top + box.new_height, box.left : box.left + box.new_width]
    assert canvas.shape == (96, 96, 3)
    assert np.array_equal(inner, resize_longest(PIXELS, 96))
    assert (canvas[: box.top] == 114).all()
    assert box.top == 16


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 5000), st.integers(1, 5000)), min_size=1, max_size=20), st.integers(1, 1500))
def test_layout_counts_as_the_resize_does(sizes, size):
    shapes, start = layout(np.array(sizes, np.int32), size)
    assert [tuple(shape) for shape in shapes[:, :2]] == [fit_longest(h, w, size) for h, w in sizes]
    assert np.array_equal(np.diff(start), shapes.prod(1))


def test_what_an_array_holds_is_said():
    with pytest.raises(DataError, match=r"floats in \[0, 1\], got float32 from 0 to 255; divide it by 255 or convert it to uint8"):
        read_image(np.linspace(0, 255, 48, dtype=np.float32).reshape(4, 4, 3))
    with pytest.raises(DataError, match=r"got float64 from -1 to 1; scale it"):
        read_image(np.linspace(-1, 1, 48).reshape(4, 4, 3))


@pytest.mark.parametrize("read", [read_image, read_header])
def test_an_empty_file_is_called_empty(read, tmp_path):
    (tmp_path / "a.png").touch()
    with pytest.raises(DataError, match=r"a\.png: expected a picture, got an empty file; replace or remove it"):
        read(tmp_path / "a.png")
