"""What every reader promises, for every annotation kind that it delivers: one small data set, written in each format."""

import pickle

import numpy as np
import pytest
import torch

from pellucid.data import collate, open_dataset
from pellucid.data.columns import SHAPES
from pellucid.data.readers import coco, dota, labelme, read_dataset, voc, yolo
from pellucid.errors import DataError, PellucidWarning, UsageError
from pellucid.geometry import Boxes
from pellucid.tasks import TASKS
from tests.data import make
from tests.data.test_dota import dota as write_dota

BOX = (10, 5, 30, 15)  # of a picture 60x40
RING = [(10, 5), (30, 5), (30, 15), (10, 15)]
POINTS = [(12, 6, 2), (20, 10, 2)]
OBJECTS = {"train": {"a": 1, "b": 0, "c": 3}, "val": {"v": 0, "w": 2}}  # objects of each picture
KINDS = ("boxes", *SHAPES)


def write_yolo(root, kind):
    x, y = np.array(RING).T / ((60,), (40,))
    ring = " ".join(f"{v:.6f}" for v in np.column_stack((x, y)).reshape(-1))
    box = f"{20 / 60:.6f} .25 {20 / 60:.6f} .25"
    points = " ".join(f"{x / 60:.6f} {y / 40:.6f} {v}" for x, y, v in POINTS)
    row = {"boxes": box, "polygons": ring, "rboxes": ring, "keypoints": f"{box} {points}"}[kind]
    rows = {split: {stem: f"0 {row}\n" * n for stem, n in stems.items()} for split, stems in OBJECTS.items()}
    return make.yolo(root, rows, yaml="names: [cat]\nkpt_shape: [2, 3]\nkpt_names: [left_ear, right_ear]\n").parent


def write_coco(root, kind):
    category = {"id": 7, "name": "cat", "keypoints": ["left_ear", "right_ear"]}
    for split, stems in OBJECTS.items():
        images = [{"id": i, "file_name": f"{stem}.jpg", "width": 60, "height": 40} for i, stem in enumerate(stems)]
        fields = {"category_id": 7, "bbox": [10, 5, 20, 10], "area": 200, "iscrowd": 0}
        shapes = {"segmentation": [np.array(RING).reshape(-1).tolist()], "keypoints": np.array(POINTS).reshape(-1).tolist()}
        owners = [i for i, n in enumerate(stems.values()) for _ in range(n)]
        make.coco(root, split, images, [{"id": j, "image_id": i, **fields, **shapes} for j, i in enumerate(owners)], [category])
    return root


def write_labelme(root, kind):
    for split, stems in OBJECTS.items():
        for stem, n in stems.items():
            shapes = []
            for group in range(n):
                shapes.append({"label": "cat", "points": RING, "shape_type": "polygon", "group_id": group})
                for name, (x, y, _) in zip(("left_ear", "right_ear"), POINTS, strict=True):
                    shapes += [{"label": name, "points": [[x, y]], "shape_type": "point", "group_id": group}] * (kind == "keypoints")
            make.labelme(root, split, stem, shapes)
    return root


def write_voc(root, kind):
    return make.voc(root, {split: {s: make.voc_object("cat", *BOX) * n for s, n in stems.items()} for split, stems in OBJECTS.items()})


def write_dota_rows(root, kind):
    row = " ".join(map(str, np.array(RING).reshape(-1))) + " cat 0\n"
    return write_dota(root, {split: {stem: row * n for stem, n in stems.items()} for split, stems in OBJECTS.items()})


WRITERS = {yolo: write_yolo, coco: write_coco, labelme: write_labelme, voc: write_voc, dota: write_dota_rows}
DELIVERED = [(reader, kind) for reader in WRITERS for kind in KINDS if kind in reader.DELIVERS]
REFUSED = [(reader, kind) for reader in WRITERS for kind in KINDS if kind not in reader.DELIVERS]


def name(value):
    return value if isinstance(value, str) else value.__name__.rsplit(".", 1)[-1]


def needs(kind):
    return ("boxes",) if kind == "boxes" else ("boxes", kind)


@pytest.fixture
def source(request, tmp_path):
    reader, kind = request.param
    return WRITERS[reader](tmp_path, kind), needs(kind)


over_all = pytest.mark.parametrize("source", DELIVERED, indirect=True, ids=lambda pair: "-".join(map(name, pair)))


def test_every_kind_of_a_task_is_delivered_by_some_reader():
    for make_task in TASKS.values():
        assert any(set(make_task().needs) <= set(reader.DELIVERS) for reader in WRITERS)
    assert len(DELIVERED) >= 11


@over_all
def test_pictures_and_objects(source):
    data = open_dataset(*source, strict=True)
    for split, stems in OBJECTS.items():
        index = data.splits[split]
        assert {index.path(i).stem: len(index.instances(i)) for i in range(len(index))} == stems
        for i in range(len(index)):
            objects = index.instances(i)
            assert isinstance(objects.shapes["boxes"], Boxes)
            assert not objects.ignore.any()
            torch.testing.assert_close(objects.shapes["boxes"].data, torch.tensor(BOX).float().expand(len(objects), 4), atol=1e-3, rtol=0)


@over_all
def test_pictures_with_and_without_objects_carry_the_same_shapes(source):
    data = read_dataset(*source)
    made = [index.instances(i) for index in data.splits.values() for i in range(len(index))]
    assert len(made) == 5
    assert sum(len(objects) == 0 for objects in made) == 2
    for objects in made:
        assert tuple(objects.shapes) == source[1]
        assert {len(shape) for shape in objects.shapes.values()} == {len(objects)}
    joined = type(made[0]).cat(made)  # as a mosaic does
    assert len(joined) == 6
    torch.testing.assert_close(joined.shapes[source[1][-1]].bounds()[0], made[0].shapes[source[1][-1]].bounds()[0])


@over_all
def test_the_targets_of_a_batch_can_be_made_of_it(source):
    data = read_dataset(*source)
    makers = {make().needs: make for make in TASKS.values()}
    task = makers[source[1]](**({"points": 2} if "keypoints" in source[1] else {}))
    index = data.splits["train"]
    moved = [index.instances(i) for i in range(len(index))]
    targets = collate.targets(moved, 64, task.targets)
    assert targets.valid.sum(1).tolist() == [1, 0, 3]
    assert all(extra.shape[:2] == targets.valid.shape for extra in targets.extras.values())


@over_all
def test_one_class_map_and_one_form_for_every_choice_of_splits(source):
    whole = read_dataset(*source)
    for splits in (("train",), ("val",), ("val", "train")):
        part = open_dataset(*source, splits)
        assert tuple(part.splits) == splits
        assert (part.names, part.category_ids) == (whole.names, whole.category_ids)
        assert part.task_args() == whole.task_args()
        for split in splits:
            assert set(part.splits[split].columns) == set(whole.splits["train"].columns)


@over_all
def test_a_broken_picture_is_left_out_alone_and_named(source):
    folder, kinds = source
    path = next(path for path in folder.rglob("*") if path.stem == "a" and path.suffix in (".jpg", ".png"))
    path.write_bytes(b"")
    with pytest.warns(PellucidWarning, match=rf"1 image\(s\) cannot be read.*{path.name}"):
        data = open_dataset(folder, kinds)
    assert [len(data.splits["train"].instances(i)) for i in range(2)] == [0, 3]
    with pytest.raises(DataError, match=path.name):
        open_dataset(folder, kinds, strict=True)


@over_all
def test_an_index_is_pickled_and_cut_down(source):
    index = read_dataset(*source).splits["train"]
    again = pickle.loads(pickle.dumps(index.take([2, 1])))
    assert [len(again.instances(i)) for i in range(2)] == [3, 0]
    for kind, shape in index.instances(2).shapes.items():
        assert torch.equal(again.instances(0).shapes[kind].data, shape.data)
    assert again.single_class().instances(0).labels.tolist() == [0, 0, 0]
    assert again.nbytes > 0


@pytest.mark.parametrize(("reader", "kind"), REFUSED, ids=name)
def test_what_a_format_does_not_hold_is_refused(tmp_path, reader, kind):
    with pytest.raises(UsageError, match=rf"reader delivers .*, not {kind}; choose another task or format"):
        open_dataset(WRITERS[reader](tmp_path, "boxes"), needs(kind))
