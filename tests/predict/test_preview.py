"""Sheets of labels, for every task."""

import weakref

import numpy as np
import pytest

from pellucid.data.readers import read_dataset
from pellucid.results import label_sheet, preview
from tests.data.make import yolo

ROWS = {
    "boxes": "0 .5 .5 .5 .5\n",
    "polygons": "0 .25 .25 .75 .25 .75 .75\n",
    "keypoints": "0 .5 .5 .5 .5 .25 .25 2 .75 .75 1\n",
    "rboxes": "0 .5 .2 .8 .5 .5 .8 .2 .5\n",
}
YAML = "names: [cat]\nkpt_shape: [2, 3]\n"


@pytest.mark.parametrize("kind", ROWS)
def test_every_kind_is_drawn_beside_pictures_without_objects(tmp_path, kind):
    source = yolo(tmp_path, {"train": {"a": ROWS[kind], "b": "", "c": ROWS[kind] * 2}, "val": {"v": ""}}, yaml=YAML, width=96, height=96)
    index = read_dataset(source, ("boxes", kind) if kind != "boxes" else ("boxes",)).splits["train"]
    sheet = np.asarray(label_sheet(index, columns=3, tile=96)).astype(int)
    assert sheet.shape == (96, 3 * 96 + 8, 3)
    plain = np.array((90, 120, 30))
    changed = [(np.abs(sheet[:, 100 * i : 100 * i + 96] - plain) > 40).any(-1).sum() for i in range(3)]
    assert changed[1] == 0
    assert min(changed[0], changed[2]) > 50
    assert label_sheet(index, count=1, tile=64).size == (64, 64)


def test_one_picture_is_in_memory_however_many_are_drawn(tmp_path, monkeypatch):
    source = yolo(tmp_path, {"train": {f"{i:02}": ROWS["boxes"] for i in range(12)}, "val": {"v": ""}}, yaml=YAML)
    held, most = [], []

    def read(path):
        picture = read_image(path)
        held.append(weakref.ref(picture))
        most.append(sum(other() is not None for other in held))
        return picture

    read_image = preview.read_image
    monkeypatch.setattr(preview, "read_image", read)
    assert label_sheet(read_dataset(source).splits["train"], count=12, columns=4, tile=32).size == (4 * 36 - 4, 3 * 36 - 4)
    assert len(most) == 12
    assert max(most) == 1
