"""Mistakes reported elsewhere, held for every task and format: labels beside pictures, pairs after a bad label, one class, seeds."""

import hashlib
import shutil
from collections import namedtuple

import numpy as np
import pytest

from pellucid.config import TrainConfig
from pellucid.data import doctor, open_dataset
from pellucid.data.cache import ImageStore
from pellucid.data.module import DataModule
from pellucid.data.readers import read_dataset
from pellucid.errors import PellucidWarning
from pellucid.tasks import TASKS
from pellucid.train.preflight import check_room
from pellucid.train.run import open_all
from tests.train.conftest import make_kind, make_squares

from .make import codes, labelme, picture, text, voc, voc_object
from .test_dota import dota

KINDS = {"detect": "boxes", "segment": "polygons", "pose": "keypoints", "obb": "rboxes"}
COLORS = {"1": (250, 0, 0), "2": (0, 250, 0), "3": (0, 0, 250), "4": (250, 250, 0)}
RING = [[5, 5], [25, 5], [25, 25]]


def of_task(task, root, **counts):
    return make_squares(root, **counts) if task == "detect" else make_kind(root, KINDS[task], **counts)


def test_every_task_is_held():
    assert set(KINDS) == set(TASKS)


@pytest.mark.parametrize("task", KINDS)
def test_labels_beside_pictures_in_a_folder_called_images_are_used(task, tmp_path):
    source = of_task(task, tmp_path, train=4, val=2)
    needs = TASKS[task]().needs
    before = open_dataset(source, needs).splits["train"]
    assert len(before.labels) == 6
    for label in (tmp_path / "labels/train").iterdir():
        shutil.move(label, tmp_path / "images/train" / label.name)
    report = doctor.check(source, needs)
    assert codes(report.findings)["labels-beside"] == 4
    assert report.splits["train"].objects == 6
    after = open_dataset(source, needs).splits["train"]
    assert np.array_equal(after.boxes, before.boxes)


def write(form, root):
    """Four pictures of four colours whose object's class is the picture's number; the label of the second is broken."""
    name = {"1": "one", "2": "two", "3": "three", "4": "four"}
    if form == "yolo":
        for stem in COLORS:
            text(root / f"labels/train/{stem}.txt", "foo" if stem == "2" else f"{int(stem) - 1} .5 .5 .5 .5\n")
        text(root / "data.yaml", "names: [one, two, three, four]\ntrain: images/train\nval: images/train\n")
        folder = root / "images/train"
    elif form == "dota":
        rows = {stem: f"5 5 30 5 30 20 5 20 {name[stem]} 0\n" for stem in COLORS} | {"2": "foo\n"}
        dota(root, {"train": rows, "val": {"v": rows["1"]}})
        folder = root / "train/images"
    elif form == "voc":
        pages = {stem: voc_object(name[stem], 5, 5, 20, 20) for stem in COLORS} | {"2": "<object>foo"}
        voc(root, {"train": pages, "val": {"v": pages["1"]}})
        folder = root / "JPEGImages"
    else:
        for split, stem in [*(("train", stem) for stem in COLORS), ("val", "v")]:
            labelme(root, split, stem, [{"label": name.get(stem, "one"), "shape_type": "polygon", "points": RING}])
        text(root / "train/2.json", '{"shapes": foo')
        folder = root / "train"
    for stem, color in COLORS.items():
        picture(next(iter(folder.glob(f"{stem}.jpg")), folder / f"{stem}.{'png' if form == 'dota' else 'jpg'}"), color=color)
    return root, name


@pytest.mark.parametrize("form", ["yolo", "dota", "voc", "labelme"])
def test_a_broken_label_shifts_no_pair_also_not_through_the_cache(form, tmp_path):
    source, name = write(form, tmp_path / "set")
    color_of = {name[stem]: color for stem, color in COLORS.items()}
    for attempt in range(2):
        data = read_dataset(source)
        index = data.splits["train"]
        assert any("2." in place for finding in data.all_findings() for place in finding.places)
        store = ImageStore(index, 32, "disk", tmp_path / "cache")
        looked = 0
        for row in range(len(index)):
            pixels = store[row].reshape(-1, 3).mean(0)
            for label in index.instances(row).labels.tolist():
                assert np.abs(pixels - color_of[index.names[label]]).max() < 20, (attempt, row)
                looked += 1
        assert looked == 3


@pytest.mark.parametrize("task", KINDS)
def test_one_class_on_a_fresh_set_of_two(task, tmp_path):
    source = of_task(task, tmp_path, train=6, val=4)
    config = TrainConfig(model=f"{task}-n", data=str(source), single_cls=True, imgsz=32, device="cpu")
    dataset, _, card = open_all(config)
    assert set(open_dataset(source, TASKS[task]().needs).splits["train"].labels.tolist()) == {0, 1}, "there are two"
    assert len(card.names) == len(dataset.names) == 1
    for index in dataset.splits.values():
        assert len(index.labels)
        assert set(index.labels.tolist()) == {0}
        assert index.class_counts().tolist() == [len(index.labels)]
        assert set(index.instances(0).shapes) >= {"boxes", KINDS[task]}


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning", "ignore:.*does not have many workers", "ignore:This DataLoader will create")
@pytest.mark.parametrize("task", KINDS)
def test_the_seed_decides_what_is_seen_and_the_workers_do_not(task, tmp_path):
    source = of_task(task, tmp_path, train=6, val=2)
    dataset = open_dataset(source, TASKS[task]().needs)
    made = TASKS[task](**dataset.task_args())

    def digest(seed, workers):
        loader = DataModule(dataset, made, imgsz=32, batch=3, seed=seed, workers=workers).train_dataloader()
        found = hashlib.sha256()
        for epoch in range(2):
            loader.keys.set_epoch(epoch)
            for packed in loader:
                for part in (packed.buffer, packed.matrices, packed.color, packed.targets.boxes):
                    found.update(part.numpy().tobytes())
        return found.hexdigest()

    alone = {seed: digest(seed, 0) for seed in (0, 1)}
    assert alone[0] != alone[1]
    assert alone == {seed: digest(seed, 2) for seed in (0, 1)} == {seed: digest(seed, 0) for seed in (0, 1)}


def test_a_small_shared_memory_is_said_before_the_run_with_the_numbers_and_the_way_out(tmp_path, monkeypatch):
    Usage = namedtuple("Usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(64e6, 0, 64e6) if str(path) == "/dev/shm" else Usage(1e13, 0, 1e13))
    source = make_squares(tmp_path, train=2, val=2)
    config = TrainConfig(model="detect-n", data=str(source), batch=32, imgsz=640, workers=4)
    index = open_dataset(source).splits["train"]
    with pytest.warns(
        PellucidWarning, match=r"/dev/shm: about [\d,]+ MB are needed, 64 MB are free; take fewer workers=.*--shm-size"
    ) as caught:
        check_room(config, 4, index, 2, tmp_path, 1000)
    assert len(caught) == 1
    check_room(config, 0, index, 2, tmp_path, 1000)  # pictures that no worker loads take none
