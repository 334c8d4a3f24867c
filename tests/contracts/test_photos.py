"""One photo in training, validation and prediction: turned by its EXIF tag, named in another script, grey, with a palette, offline."""

import socket
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from pellucid.augment.apply import apply
from pellucid.cli import main
from pellucid.config import TrainConfig
from pellucid.data.images import image_size, read_image
from pellucid.data.readers import open_dataset
from pellucid.evaluate import evaluate
from pellucid.predict import predict
from pellucid.predict.files import Kept, write_results
from pellucid.tasks import TASKS
from pellucid.train.run import TrainingData, loading_of, open_all
from pellucid.zoo import Card, create
from tests.decode.fakes import RedFinder
from tests.train.conftest import make_squares

BOX = (8, 24, 32, 48)  # of the red square, as the photo is displayed: 40 wide, 60 high
SHOWN = (60, 40)  # height, width
NAME = "지단.jpg"
STORED = {  # orientation: what a camera stores of a displayed picture
    1: lambda image: image,
    2: lambda image: image[:, ::-1],
    3: lambda image: image[::-1, ::-1],
    4: lambda image: image[::-1],
    5: lambda image: image.transpose(1, 0, 2),
    6: lambda image: np.rot90(image, 1),
    7: lambda image: image[::-1, ::-1].transpose(1, 0, 2),
    8: lambda image: np.rot90(image, -1),
}
CARD = Card("detect", "n", ("blue", "red"), (0, 1), 64)


def photo():
    image = np.full((*SHOWN, 3), 90, np.uint8)
    image[BOX[1] : BOX[3], BOX[0] : BOX[2]] = (255, 0, 0)
    return image


def rows():
    """What each task reads of the red square, as displayed."""
    x1, y1, x2, y2 = (BOX[0] / 40, BOX[1] / 60, BOX[2] / 40, BOX[3] / 60)
    centre = f"{(x1 + x2) / 2} {(y1 + y2) / 2} {x2 - x1} {y2 - y1}"
    corners = f"{x1} {y1} {x2} {y1} {x2} {y2} {x1} {y2}"
    points = f"{x1} {y1} 2 {x2} {y1} 2 {x2} {y2} 2 {x1} {y2} 2"
    return {"detect": f"1 {centre}", "segment": f"1 {corners}", "pose": f"1 {centre} {points}", "obb": f"1 {corners}"}


def photos(folder, task, orientation=6):
    """A data set whose only photo, in both splits, is stored turned; in folders and under a name of other scripts."""
    root = folder / "数据 集"
    for split in ("train", "val"):
        for kind in ("images", "labels"):
            (root / kind / split).mkdir(parents=True)
        exif = Image.Exif()
        exif[0x0112] = orientation
        stored = Image.fromarray(np.ascontiguousarray(STORED[orientation](photo())))
        assert stored.size == ((60, 40) if orientation >= 5 else (40, 60))
        stored.save(root / "images" / split / NAME, exif=exif, quality=95, subsampling=0)
        (root / "labels" / split / NAME).with_suffix(".txt").write_text(rows()[task])
    (root / "data.yaml").write_text(
        "train: images/train\nval: images/val\nnames: [blue, red]\nkpt_shape: [4, 3]\nflip_idx: [1, 0, 3, 2]\n", encoding="utf-8"
    )
    return root / "data.yaml"


def red(image):
    """Bounds of the red pixels of (3, H, W)."""
    on = (image[0] > 180) & (image[1] < 90) & (image[2] < 90)
    assert on.any()
    ys, xs = on.any(1).nonzero(), on.any(0).nonzero()
    return torch.stack((xs.min(), ys.min(), xs.max() + 1, ys.max() + 1)).float()


STILL = {"mosaic": 0.0, "translate": 0.0, "hsv_h": 0.0, "hsv_s": 0.0, "hsv_v": 0.0}


@pytest.mark.parametrize(
    ("task", "orientation"),
    [("detect", turn) for turn in STORED] + [(task, 6) for task in sorted(TASKS) if rows()[task] != rows()["detect"]],
)
def test_a_turned_photo_is_labelled_as_displayed_in_training(task, orientation, tmp_path):
    data = photos(tmp_path, task, orientation)
    for preset in ({"preset": "off"}, {**STILL, "fliplr": 1.0, "scale": 0.1}):
        config = TrainConfig(model=f"{task}-n", data=str(data), batch=1, imgsz=128, workers=0, device="cpu", accumulate=1, **preset)
        dataset, _, card = open_all(config)
        (packed,) = TrainingData(dataset, TASKS[task](**card.task_args), **loading_of(config)).train_dataloader()
        batch = apply(packed)
        assert batch.targets.valid.sum() == 1
        box = batch.targets.boxes[0, 0]
        assert (box[2:] - box[:2]).min() > 20
        torch.testing.assert_close(box, red(batch.images[0].int()), atol=2.5, rtol=0)
        if "keypoints" in batch.targets.extras:
            points = batch.targets.extras["keypoints"][0, 0, :, :2]
            torch.testing.assert_close(torch.cat((points.amin(0), points.amax(0))), box, atol=1e-2, rtol=0)


@pytest.mark.parametrize("orientation", sorted(STORED))
def test_a_turned_photo_is_scored_and_predicted_as_displayed(orientation, tmp_path):
    data = photos(tmp_path, "detect", orientation)
    dataset = open_dataset(str(data), needs=TASKS["detect"]().needs, splits=("val",))
    index = dataset.splits["val"]
    assert index.instances(0).shapes["boxes"].data.round().tolist() == [list(BOX)]
    loaded = TrainingData(dataset, TASKS["detect"](), imgsz=64, batch=1, workers=0)
    scores = evaluate(RedFinder(), loaded.eval_loader("val"), index, TASKS["detect"](), ("blue", "red"), curves=False)
    assert scores.paths["e2e"].metrics["box/ap50"] == pytest.approx(1.0)
    (tmp_path / "out").mkdir()
    (result,) = write_results(
        predict(RedFinder(), CARD, data.parent / "images" / "val"), tmp_path / "out", Kept(save_txt=True, save_crop=True)
    )
    assert result.orig_shape == SHOWN
    torch.testing.assert_close(result.boxes.xyxy, torch.tensor([BOX]).float(), atol=1.0, rtol=0)
    written = {str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*") if path.is_file()}
    assert written == {NAME, "labels/지단.txt", "crops/red/지단-0.jpg"}
    assert image_size(tmp_path / "out" / NAME) == SHOWN
    crop = read_image(tmp_path / "out/crops/red/지단-0.jpg").astype(int)
    assert (crop[2:-2, 2:-2, 0] > 180).all()


def encoded(image, kind, **options):
    file = BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def forms(mode, folder):
    """One picture of a mode as a file, PIL image, array, tensor and bytes."""
    draws = np.random.default_rng(0).integers(0, 256, (48, 64, 4), np.uint8)
    image = Image.fromarray(draws[..., :3]).convert(mode) if mode not in ("RGBA", "LA") else Image.fromarray(draws).convert(mode)
    path = folder / "a.png"
    image.save(path, **({"transparency": 3} if mode == "P" else {}))
    wanted = np.asarray(image.convert("RGB"))
    arrays = [np.asarray(image)] if mode in ("L", "RGB", "RGBA", "LA", "1") else []
    tensors = [torch.from_numpy(wanted.copy()).permute(2, 0, 1)]
    return [path, str(path), image, path.read_bytes(), encoded(image, "TIFF"), *arrays, *tensors], wanted


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA"])
def test_a_picture_of_every_mode_is_the_same_in_every_form(mode, tmp_path):
    given, wanted = forms(mode, tmp_path)
    assert wanted.std() > 20
    model = create(CARD, seed=0)
    results = list(predict(model, CARD, given, imgsz=64, conf=0.0, max_det=10))
    assert len(results) == len(given)
    for result in results:
        assert np.array_equal(result.image, wanted)
        assert len(result) == 10
        assert torch.equal(result.boxes.xyxy, results[0].boxes.xyxy)
        assert torch.equal(result.boxes.conf, results[0].boxes.conf)


def test_nothing_connects_anywhere(tmp_path, monkeypatch, capsys):
    """Training with charts, scores, prediction, tools: all with sockets that refuse."""

    def refuse(*_, **__):
        raise AssertionError("a connection was tried")

    for name in ("connect", "connect_ex", "sendto", "bind"):
        monkeypatch.setattr(socket.socket, name, refuse)
    for name in ("getaddrinfo", "create_connection", "gethostbyname"):
        monkeypatch.setattr(socket, name, refuse)
    with pytest.raises(AssertionError, match="a connection was tried"):
        socket.create_connection(("127.0.0.1", 9))
    data = make_squares(tmp_path / "data", train=4, val=2)
    common = ["device=cpu", f"project={tmp_path / 'runs'}"]
    assert main(["train", "model=detect-n", f"data={data}", "epochs=1", "batch=2", "imgsz=64", "workers=0", "plots=true", *common]) == 0
    run = tmp_path / "runs" / "detect" / "train"
    weights = run / "weights" / "best.safetensors"
    assert main(["val", f"model={weights}", f"data={data}", "workers=0", "plots=true", *common]) == 0
    words = [f"source={Path(data).parent / 'images' / 'val'}", "conf=0", "max_det=2", "save_txt=true", "save_crop=true", "save_json=true"]
    assert main(["predict", f"model={weights}", *words, *common]) == 0
    assert main(["data", "check", f"data={data}", "imgsz=64"]) in (0, 1)
    assert main(["info", f"model={weights}", "imgsz=64"]) == 0
    assert main(["bench", f"model={weights}", "repeats=3", "device=cpu"]) == 0
    assert main(["zoo"]) == main(["env"]) == 0
    for folder in (run, tmp_path / "runs/detect/val"):
        assert list(folder.glob("*.png")) or list(folder.glob("*.jpg"))
    assert len(list((tmp_path / "runs/detect/predict").glob("*.png"))) == 2
