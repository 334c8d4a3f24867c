"""Outlines in training pictures: kept by the share of what they fill, however their rings cross."""

import numpy as np
import pytest
import torch

from pellucid.augment.paste import move
from pellucid.augment.plan import View
from pellucid.augment.presets import AugmentConfig
from pellucid.data import open_dataset
from pellucid.data.dataset import TrainingSet
from pellucid.geometry import Boxes, Polygons
from pellucid.geometry.affine import translation
from pellucid.tasks import TASKS
from pellucid.types import Instances
from tests.data.make import yolo

S = 100
RINGS = {
    "bow-tie": [(20, 20), (80, 80), (80, 20), (20, 80)],
    "small lobe": [(20, 20), (60, 60), (80, 80), (80, 60), (60, 80), (20, 80)],
    "walked twice": [(20, 20), (80, 20), (80, 80), (20, 80)] * 2,
    "plain": [(20, 20), (80, 20), (80, 80), (20, 80)],
}


@pytest.mark.parametrize("name", RINGS)
@pytest.mark.parametrize(("shift", "kept"), [(0, True), (-45, True), (50, True), (-77, False), (79, False), (-90, False)])
def test_objects_are_kept_by_what_is_seen_of_what_they_fill(name, shift, kept):
    ring = Polygons.from_parts([[RINGS[name]]])
    objects = Instances(torch.tensor([3]), {"boxes": Boxes(ring.bounds()), "polygons": ring})
    moved = move(View((0,), (0, 0), S, translation(shift, 0), S), [objects], [(S, S)], [(S, S)])
    seen = ring.warp(translation(shift, 0)).rasterise(S, S).sum() / ring.rasterise(S, S).sum()
    assert kept == (seen > 0.1)
    assert moved.labels.tolist() == [3] * kept


def test_a_bow_tie_in_a_label_file_is_taught(tmp_path):
    row = "0 0.2 0.2 0.8 0.8 0.8 0.2 0.2 0.8\n"
    needs = ("boxes", "polygons")
    index = open_dataset(yolo(tmp_path, {"train": {"a": row}, "val": {"a": row}}, width=S, height=S), needs, strict=True).splits["train"]
    still = AugmentConfig(mosaic=0, scale=0, translate=0, fliplr=0)
    store = [np.zeros((S, S, 3), np.uint8)]
    made = TrainingSet(index, store, still, S, 0)[(0, 0)].instances
    assert made.shapes["boxes"].data[0].tolist() == pytest.approx([20, 20, 80, 80], abs=1e-4)
    assert TASKS["segment"]().targets(made, S)["masks"].any()
