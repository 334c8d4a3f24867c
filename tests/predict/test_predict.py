import contextlib
import io
import json
import time

import numpy as np
import pytest
import torch
from PIL import Image, TiffImagePlugin
from pycocotools.coco import COCO

from pellucid.data import images
from pellucid.data.images import read_first, read_header
from pellucid.errors import DataError, PellucidWarning, UsageError
from pellucid.predict import Source, predict
from pellucid.predict import run as run_module
from pellucid.predict.files import Kept, write_results
from pellucid.zoo import Card, create
from tests.decode.fakes import RedFinder

CARD = Card("detect", "n", ("blue", "red"), (4, 9), 192)
BOX = (20, 10, 70, 55)  # on 120 x 90


def picture(box=BOX, size=(120, 90)):
    image = np.full((size[1], size[0], 3), 90, np.uint8)
    image[box[1] : box[3], box[0] : box[2]] = (255, 0, 0)
    return image


def save(path, image, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(image).save(path, **options)
    return path


def find(source, model=None, **settings):
    return list(predict(model or RedFinder(), CARD, source, **settings))


def assert_close(result, box=BOX, tolerance=1.0):
    assert len(result) == 1
    torch.testing.assert_close(result.boxes.xyxy, torch.tensor([box]).float(), atol=tolerance, rtol=0)


@pytest.mark.parametrize("path", ["e2e", "nms"])
@pytest.mark.parametrize("imgsz", [64, 192, 640])
def test_the_object_is_where_it_is(path, imgsz):
    (result,) = find(picture(), path=path, imgsz=imgsz)
    assert_close(result, tolerance=1.01 * max(1, 120 / imgsz))
    assert result.boxes.cls.tolist() == [1]
    assert result.boxes.conf.tolist() == pytest.approx([0.9])
    assert result.orig_shape == (90, 120)
    assert set(result.speed) == {"pre", "network", "post"}


def test_path_pil_and_array_agree(tmp_path):
    image = picture()
    path = save(tmp_path / "a.png", image)
    tensor = torch.from_numpy(image).permute(2, 0, 1)
    results = find([path, Image.open(path), image, tensor, tensor.float() / 255, path.read_bytes()])
    assert len(results) == 6
    for result in results:
        assert torch.equal(result.boxes.xyxy, results[0].boxes.xyxy)
        assert np.array_equal(result.image, image)


@pytest.mark.parametrize("mode", ["L", "P"])
def test_grey_and_palette_pictures_agree_in_every_form(mode, tmp_path):
    image = Image.fromarray(picture()).convert(mode)
    image.save(tmp_path / "a.png")
    forms = [tmp_path / "a.png", image, np.asarray(image) if mode == "L" else np.asarray(image.convert("RGB"))]
    results = find(forms)
    assert [len(result) for result in results] == ([0, 0, 0] if mode == "L" else [1, 1, 1])
    for result in results:
        assert np.array_equal(result.image, results[0].image)


def test_a_turned_photo_is_upright(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6  # stored turned: show it a quarter clockwise
    stored = np.rot90(picture(), 1)
    assert stored.shape[:2] == (120, 90)
    (result,) = find(save(tmp_path / "a.png", np.ascontiguousarray(stored), exif=exif))
    assert result.orig_shape == (90, 120)
    assert_close(result)


def test_alone_or_in_a_batch():
    pictures = [picture((5 + 9 * i, 3 + 5 * i, 60 + 8 * i, 40 + 6 * i), (120 + 10 * i, 90)) for i in range(5)]
    model = RedFinder()
    together = find(pictures, model, batch=3)
    assert model.batches == [3, 2]
    for image, result in zip(pictures, together, strict=True):
        (alone,) = find(image)
        assert len(alone) == 1
        assert torch.equal(alone.boxes.xyxy, result.boxes.xyxy)
    assert [result.meta.row for result in together] == [0, 1, 2, 3, 4]


def test_a_real_network_alone_and_in_a_batch():
    model = create(CARD, seed=0)
    pictures = [picture(), picture((60, 5, 110, 80), (150, 100))]
    settings = {"imgsz": 64, "conf": 0.0, "max_det": 20}
    together = find(pictures, model, batch=2, **settings)
    for image, result in zip(pictures, together, strict=True):
        (alone,) = find(image, model, **settings)
        assert len(alone) == len(result) > 0
        torch.testing.assert_close(alone.boxes.conf, result.boxes.conf, atol=1e-5, rtol=0)


def test_few_anchors_at_a_tiny_size():
    model = create(CARD, seed=0)
    (result,) = find(picture(), model, imgsz=32, conf=0.0)
    assert len(result) <= 21


def test_few_pictures_are_read_ahead(tmp_path, monkeypatch):
    for number in range(30):
        save(tmp_path / f"{number}.png", picture())
    reads = []
    read = Source.read_first
    monkeypatch.setattr(Source, "read_first", lambda self: reads.append(self) or read(self))
    stream = predict(RedFinder(), CARD, tmp_path, batch=2)
    assert reads == []
    next(stream)
    time.sleep(0.3)  # the threads have all the time they want
    assert 2 <= len(reads) <= 2 + 2 + run_module.AHEAD + 1
    assert [str(result.name) for result in stream] == [f"{number}.png" for number in range(1, 30)]


def test_chosen_classes_go_by_the_users_ids_and_names():
    assert len(find(picture(), classes=(9,))[0]) == 1
    assert len(find(picture(), classes=(4,))[0]) == 0
    assert len(find(picture(), classes=("red",))[0]) == len(find(picture(), classes=(4, "red"))[0]) == 1
    assert len(find(picture(), classes=("blue",))[0]) == 0
    with pytest.raises(UsageError, match=r"expected ids or names .*\(4 blue, 9 red\), got \['rad'\]; did you mean 'red' for 'rad'\?$"):
        find(picture(), classes=("rad",))
    with pytest.raises(UsageError, match="4 blue, 9 red"):
        find(picture(), classes=(1,))


def test_unreadable_pictures_are_named_once_and_left_out(tmp_path):
    for number in (1, 2, 3):
        save(tmp_path / f"{number}.png", picture())
    (tmp_path / "2.png").write_bytes(b"not a picture")
    with pytest.warns(PellucidWarning, match=r"1 of 3 pictures .*2\.png"):
        results = find(tmp_path)
    assert [str(result.name) for result in results] == ["1.png", "3.png"]
    with pytest.raises(DataError, match=r"2\.png"):
        find(tmp_path, strict=True)
    with pytest.raises(DataError, match=r"2\.png"):
        find(tmp_path / "2.png")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"imgsz": 100}, "multiple of 32, got 100; try 96"),
        ({"conf": 2}, "from 0 to 1"),
        ({"batch": 0}, "at least 1"),
        ({"path": "best"}, "e2e, nms"),
        ({"agnostic_nms": True}, "path='nms'"),
        ({"confidence": 0.5}, "did you mean conf"),
        ({"precision": "8"}, "expected one of 32, 16, bf16"),
        ({"vid_stride": 0}, "at least 1"),
        ({"vid_stride": 2}, "expected a video"),
        ({"color": "hsv"}, "expected rgb or bgr"),
    ],
)
def test_wrong_settings_are_refused_before_anything_is_read(settings, words):
    with pytest.raises(UsageError, match=words):
        predict(RedFinder(), CARD, picture(), **settings)


def test_saved_files_mirror_the_sources(tmp_path):
    for name in ("a/1.jpg", "b/1.jpg", "b/지단.png"):
        save(tmp_path / "in" / name, picture())
    for result in find(tmp_path / "in"):
        result.save(tmp_path / "out")
        result.save_txt(tmp_path / "out")
    written = sorted(str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*.*"))
    assert written == ["a/1.jpg", "a/1.txt", "b/1.jpg", "b/1.txt", "b/지단.png", "b/지단.txt"]


def test_records_and_a_stream_count_what_could_not_be_read(tmp_path):
    items = [save(tmp_path / "a.png", picture()), str(tmp_path / "nothere.jpg"), picture()]
    with pytest.warns(PellucidWarning, match=r"1 of 3 pictures .*nothere\.jpg"):
        results = list(write_results(find(iter(items)), tmp_path, Kept(save=False, save_json=True)))
    assert [str(result.name) for result in results] == ["a.png", "image0.jpg"]
    assert [record["image_id"] for record in json.loads((tmp_path / "predictions.json").read_text())] == [0, 2]


def test_pages_behind_the_first_are_warned_about(tmp_path):
    pages = [Image.fromarray(picture()), Image.new("RGB", (40, 30)), Image.new("L", (40, 30))]
    pages[0].save(tmp_path / "b.tif", save_all=True, append_images=pages[1:])
    pages[0].save(tmp_path / "c.tif")
    small = TiffImagePlugin.ImageFileDirectory_v2()
    small[254] = 1
    with TiffImagePlugin.AppendingTiffWriter(tmp_path / "d.tif", True) as file:
        pages[0].save(file, "TIFF")
        file.newFrame()
        pages[1].save(file, "TIFF", tiffinfo=small)
    with pytest.warns(PellucidWarning, match=r"of 1 files with several pages the first page alone .*: \S*b\.tif \(3 pages\)$"):
        results = find(tmp_path)
    assert [len(result) for result in results] == [1, 1, 1]
    assert [read_header(tmp_path / name).pages for name in ("b.tif", "c.tif", "d.tif")] == [3, 1, 1]
    content = (tmp_path / "b.tif").read_bytes()
    pixels, count = read_first(content)
    assert count == 3
    assert (pixels == picture()).all(), "counting pages leaves the first one's pixels"
    assert read_first(picture())[1] == read_first(pages[0])[1] == 1
    with Image.open(tmp_path / "b.tif") as image:
        image.seek(1)
        assert read_first(image)[0].max() == 0, "a page that was chosen is the picture"


def test_a_file_is_opened_once_for_pixels_and_pages(tmp_path, monkeypatch):
    pages = [Image.fromarray(picture()), Image.new("RGB", (40, 30))]
    pages[0].save(tmp_path / "b.tif", save_all=True, append_images=pages[1:])
    opened = []
    plain = images._opened
    monkeypatch.setattr(images, "_opened", lambda path: opened.append(path) or plain(path))
    with pytest.warns(PellucidWarning, match="first page alone"):
        assert len(find(tmp_path)) == 1
    assert len(opened) == 1


def test_a_broken_page_behind_the_first_does_no_harm(tmp_path):
    pages = [Image.fromarray(picture()), Image.new("RGB", (40, 30))]
    pages[0].save(tmp_path / "b.tif", save_all=True, append_images=pages[1:])
    content = (tmp_path / "b.tif").read_bytes()
    with Image.open(tmp_path / "b.tif") as image:
        image.seek(1)
        second = image.tag_v2.offset
    assert 0 < second < len(content)
    pixels, _ = read_first(content[: second + 3])
    assert (pixels == picture()).all()


def test_records_say_whose_they_are(tmp_path):
    (tmp_path / "out").mkdir()
    for number, image in enumerate((picture(), np.full((60, 80, 3), 90, np.uint8), picture())):
        save(tmp_path / "in" / f"{number}.png", image)
    results = list(write_results(find(tmp_path / "in"), tmp_path / "out", Kept(save=False, save_json=True)))
    told = json.loads((tmp_path / "out" / "images.json").read_text())
    records = json.loads((tmp_path / "out" / "predictions.json").read_text())
    paths = {image["id"]: image["file_name"] for image in told["images"]}
    assert [path.rpartition("/")[2] for path in paths.values()] == ["0.png", "1.png", "2.png"]
    assert (told["images"][1]["width"], told["images"][1]["height"]) == (80, 60)
    assert told["categories"] == [{"id": 4, "name": "blue"}, {"id": 9, "name": "red"}]
    assert {record["image_id"] for record in records} == {0, 2}
    assert all(record["file_name"] == paths[record["image_id"]] for record in records)
    with contextlib.redirect_stdout(io.StringIO()):
        found = COCO(str(tmp_path / "out" / "images.json")).loadRes(str(tmp_path / "out" / "predictions.json"))
    assert len(found.getAnnIds(imgIds=[0])) == len(results[0]) > 0
    mine = [record for record in records if record["image_id"] == 2]
    back = type(results[2]).from_coco(mine, {4: "blue", 9: "red"}, (90, 120))
    assert back.to_coco() == results[2].to_coco()
