"""Previews of training batches show what every task is taught."""

import pytest
from PIL import Image

from pellucid.augment.apply import apply
from pellucid.config import TrainConfig
from pellucid.geometry.keypoints import Keypoints
from pellucid.geometry.masks import Masks, unpack_bits
from pellucid.geometry.rboxes import RBoxes
from pellucid.results.preview import telling_shapes
from pellucid.train.report import plot_batch, targets_of
from pellucid.train.run import TrainingData, loading_of, open_all
from pellucid.zoo import make_task

SHOWN = {"segment": ("nuclei", {"masks": Masks}), "pose": ("quokka", {"keypoints": Keypoints}), "obb": ("nuclei-obb", {"rboxes": RBoxes})}


@pytest.mark.parametrize("name", SHOWN)
def test_a_preview_shows_what_is_taught(name, tmp_path):
    data, kinds = SHOWN[name]
    config = TrainConfig(model=f"{name}-n", data=data, imgsz=128, batch=4, workers=0)
    dataset, _, card = open_all(config)
    loader = TrainingData(dataset, make_task(card), **loading_of(config)).train_dataloader()
    batch = apply(next(iter(loader)))
    objects = targets_of(batch)
    assert sum(len(each) for each in objects) == batch.targets.valid.sum() > 0
    for each in objects:
        shown = telling_shapes(each).shapes
        assert {key: type(shape) for key, shape in shown.items() if key != "boxes"} == kinds
        if name == "segment" and len(each):
            around = shown["masks"].bounds()
            assert (around - each.shapes["boxes"].data).abs().max() < 12  # cells of 4 pixels
    if name == "segment":
        for row, each in enumerate(objects):
            drawn = each.shapes["masks"].dense(128, 128).unflatten(1, (32, 4)).unflatten(3, (32, 4))  # (n, 32, 4, 32, 4)
            taught = unpack_bits(batch.targets.truth["masks"][row][batch.targets.valid[row]])
            middle = drawn[:, :, 1:3, :, 1:3].permute(0, 1, 3, 2, 4).flatten(3).float().mean(3)
            assert ((middle > 0) | ~taught).all(), "no cell that is taught is left out"
            assert ((middle < 1) | taught).all(), "none is made up"
    plot_batch(tmp_path / "sheet.jpg", batch, card.names)
    with Image.open(tmp_path / "sheet.jpg") as sheet:
        assert sheet.width > 900
