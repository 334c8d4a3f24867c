"""Loaders on the shipped pictures: the same bytes for any workers, order by epoch, position kept."""

import multiprocessing
import time
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from pytorch_lightning import LightningModule, Trainer

from pellucid.augment.presets import AugmentConfig
from pellucid.data import open_dataset
from pellucid.data.module import DataModule, EpochLoader, EpochSampler
from pellucid.data.ring import Slot
from pellucid.data.samples import sample_path
from pellucid.errors import PellucidWarning
from pellucid.tasks import TASKS
from pellucid.types import Batch, Packed

from .make import yolo

S = 96
POSE_ROW = "0 .5 .5 .5 .5 .25 .25 2 .75 .25 2 .25 .75 2 .75 .75 1\n"
STRONG = AugmentConfig(mosaic=0.8, mixup=0.4, scale=0.9, degrees=10)
QUIET = pytest.mark.filterwarnings(
    "ignore:.*does not have many workers",
    "ignore:This DataLoader will create",
    "ignore:.*use of fork.*:DeprecationWarning",
    "ignore:GPU available but not used",
    "ignore:.*LeafSpec:FutureWarning",
)


@cache
def trees():
    return open_dataset(sample_path("trees"))


def module(**loading):
    return DataModule(trees(), TASKS["detect"](), **{"imgsz": S, "batch": 5, "augment": STRONG, **loading})


def epoch_of(loader, epoch):
    loader.keys.set_epoch(epoch)
    return list(loader)


def same(a: Packed, b: Packed) -> bool:
    tensors = all(torch.equal(getattr(a, name), getattr(b, name)) for name in ("buffer", "matrices", "color", "share"))
    return tensors and a.sizes == b.sizes and a.metas == b.metas and torch.equal(a.targets.boxes, b.targets.boxes)


@QUIET
@pytest.mark.parametrize(("workers", "cached"), [(1, "none"), (4, "ram"), (2, "disk")])
def test_the_same_bytes_for_any_workers_and_cache(workers, cached, tmp_path):
    plain = module().train_dataloader()
    other = module(workers=workers, cache=cached, cache_dir=tmp_path).train_dataloader()
    for epoch in (0, 1, 4):
        expected, found = epoch_of(plain, epoch), epoch_of(other, epoch)
        assert len(expected) == len(found) == len(plain)
        assert all(same(a, b) for a, b in zip(expected, found, strict=True))
        assert sum(int(packed.targets.valid.sum()) for packed in expected) > 20


@QUIET
@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("workers", [1, 4])
def test_the_same_bytes_whether_workers_persist_or_not(workers, persistent):
    plain, data = module().train_dataloader(), module(workers=workers)
    whole = data.train_dataloader()
    settings = {**data._settings(warped=True), "persistent_workers": persistent}
    loader = EpochLoader(whole.dataset, EpochSampler(len(whole.dataset), 0), 5, **settings)
    assert loader.persistent_workers == persistent
    for epoch in (0, 1, 5):
        assert all(same(a, b) for a, b in zip(epoch_of(plain, epoch), epoch_of(loader, epoch), strict=True))


@QUIET
def test_one_stream_serves_consecutive_epochs_and_a_jump_starts_another():
    plain, loader = module().train_dataloader(), module(workers=2).train_dataloader()
    streams = []
    for epoch in (0, 1, 2, 7, 8, 3):
        assert all(same(a, b) for a, b in zip(epoch_of(plain, epoch), epoch_of(loader, epoch), strict=True))
        streams.append(loader.starts)
    assert streams == [1, 1, 1, 2, 2, 3]
    loader.keys.set_epoch(4)
    next(iter(loader))  # left within the epoch: the next pass begins it anew
    assert all(same(a, b) for a, b in zip(epoch_of(plain, 4), epoch_of(loader, 4), strict=True))
    assert loader.starts == 4


@QUIET
@pytest.mark.parametrize("ring", [False, True])
def test_a_trainer_that_never_asks_for_more_than_it_was_told_keeps_the_stream(ring, monkeypatch):
    plain, loader = module().train_dataloader(), module(workers=2, ring=ring).train_dataloader()
    steps = []
    if ring:
        monkeypatch.setattr(loader.ring, "release", lambda: steps.append("release"))
    for epoch in range(3):
        loader.keys.set_epoch(epoch)
        expected, stream = epoch_of(plain, epoch), iter(loader)
        for packed in expected:
            assert same(packed, next(stream))
            steps.append("step")
        del stream
    assert loader.starts == 1
    assert steps == (["step", "release"] * 3 * len(loader))[:-1] if ring else len(steps) == 3 * len(loader)


@QUIET
def test_no_worker_outlives_its_module_and_a_closed_one_begins_anew():
    before = multiprocessing.active_children()
    data = module(workers=2)
    loader, scored = data.train_dataloader(), data.val_dataloader()
    first, pictures = epoch_of(loader, 0), list(scored)
    assert len(multiprocessing.active_children()) == len(before) + 4
    data.teardown("fit")
    assert multiprocessing.active_children() == before
    assert all(same(a, b) for a, b in zip(first, epoch_of(loader, 0), strict=True))
    assert len(list(scored)) == len(pictures)
    data.close()
    assert multiprocessing.active_children() == before


def test_epochs_and_seeds_differ():
    loader = module().train_dataloader()
    first, second, other = epoch_of(loader, 0), epoch_of(loader, 1), epoch_of(module(seed=1).train_dataloader(), 0)
    for packs in (first, second, other):
        assert sorted(meta.row for packed in packs for meta in packed.metas) == list(range(len(trees().splits["train"])))
    assert not same(first[0], second[0])
    assert not same(first[0], other[0])


def test_closing_ends_mosaic_and_mixup():
    loader = module(augment=AugmentConfig(mixup=1, scale=0, translate=0), close_mosaic_epoch=3).train_dataloader()
    opened, closed = epoch_of(loader, 2), epoch_of(loader, 3)
    assert all(len(packed.mixed) == len(packed) for packed in opened)
    assert all(packed.mixed == () for packed in closed)
    index = trees().splits["train"]
    count = sum(int(packed.targets.valid.sum()) for packed in closed)
    assert 0.9 * len(index.boxes) < count <= len(index.boxes)


def test_a_loader_goes_on_behind_what_was_given_out():
    whole = epoch_of(module().train_dataloader(), 2)
    loader = module().train_dataloader()
    loader.keys.set_epoch(2)
    for _, _packed in zip(range(2), loader, strict=False):
        state = loader.state_dict()
    assert state == {"epoch": 2, "batches": 2}
    resumed = module().train_dataloader()
    resumed.load_state_dict(state)
    assert len(whole) > 2
    assert all(same(a, b) for a, b in zip(whole[2:], list(resumed), strict=True))
    assert len(list(resumed)) == len(whole)  # the next pass is whole again
    resumed.load_state_dict(state)
    assert len(epoch_of(resumed, 3)) == len(whole)


def test_ranks_share_the_rows_equally():
    parts = [EpochSampler(11, 0, rank, 4) for rank in range(4)]
    rows = [[row for _, row in part.keys(0)] for part in parts]
    assert {len(part) for part in rows} == {len(parts[0])} == {3}
    assert {row for part in rows for row in part} == set(range(11))


def test_fewer_pictures_than_a_batch_and_a_fraction():
    (packed,) = module(batch=64).train_dataloader()
    assert len(packed) == len(trees().splits["train"])
    small = module(fraction=0.3).index("train")
    assert 1 <= len(small) == round(0.3 * len(trees().splits["train"]))
    assert small.ids.tolist() == module(fraction=0.3).index("train").ids.tolist()
    assert len(module(fraction=0.3).index("val")) == len(trees().splits["val"])


def test_validation_is_letterboxed_in_order_with_its_objects():
    data = module()
    batches = [data.on_after_batch_transfer(packed, 0) for packed in data.val_dataloader()]
    index = trees().splits["val"]
    metas = [meta for batch in batches for meta in batch.metas]
    assert [meta.row for meta in metas] == list(range(len(index)))
    for batch in batches:
        assert isinstance(batch, Batch)
        for meta, boxes, valid in zip(batch.metas, batch.targets.boxes, batch.targets.valid, strict=True):
            assert (meta.height, meta.width) == tuple(index.sizes[meta.row])
            back = (boxes[valid] - torch.tensor([meta.letterbox.left, meta.letterbox.top] * 2)) / (S / max(meta.height, meta.width))
            assert valid.sum() > 0
            np.testing.assert_allclose(back.numpy(), index.instances(meta.row).shapes["boxes"].data.numpy(), atol=0.51 * meta.width / S)


class Recorder(LightningModule):
    """Trains one number; notes which rows came in which epoch."""

    def __init__(self, stop_at=None):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.rows, self.stop_at = [], stop_at

    def training_step(self, batch, batch_idx):
        assert isinstance(batch, Batch)
        self.rows.append((self.current_epoch, batch_idx, [meta.row for meta in batch.metas], int(batch.images.sum(dtype=torch.int64))))
        return (self.weight * batch.images.float().mean() / 255).sum()

    def validation_step(self, batch, batch_idx):
        assert isinstance(batch, Batch)

    def on_train_batch_end(self, *args):
        if len(self.rows) == self.stop_at:
            self.trainer.save_checkpoint(self.path)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.01)


@QUIET
@pytest.mark.parametrize(("epochs", "steps"), [(0, 2), (1, 0), (1, 2)])
def test_lightning_resumes_in_the_middle_of_an_epoch(epochs, steps, tmp_path):
    length = len(module(batch=4).train_dataloader())
    assert length > 2
    steps += epochs * length
    settings = {"max_epochs": 2, "accelerator": "cpu", "logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    settings |= {"enable_model_summary": False, "num_sanity_val_steps": 1, "use_distributed_sampler": False}
    whole = Recorder(stop_at=steps)
    whole.path = tmp_path / "middle.ckpt"
    Trainer(**settings).fit(whole, datamodule=module(batch=4))
    assert [epoch for epoch, *_ in whole.rows] == [0] * length + [1] * length
    rest = Recorder()
    Trainer(**settings).fit(rest, datamodule=module(batch=4), ckpt_path=whole.path)
    assert rest.rows == whole.rows[steps:]


@pytest.mark.parametrize("workers", [1, 2])
def test_the_ring_gives_the_same_bytes(workers):
    """Each batch is compared before the next but one is asked for; slots are used many times over; a pass left early spoils nothing."""
    plain, loader = module(batch=4).train_dataloader(), module(batch=4, workers=workers, ring=True).train_dataloader()
    in_ring = 0
    for epoch in (0, 1, 2, 7):
        plain.keys.set_epoch(epoch)
        loader.keys.set_epoch(epoch)
        before = None
        for ours, theirs in zip(loader, plain, strict=True):
            in_ring += ours.buffer.data_ptr() >= loader.ring.pixels.data_ptr()
            assert same(ours, theirs)
            assert before is None or same(*before)  # the batch before still stands
            before = (ours, theirs)
        if epoch == 1:
            next(iter(loader))
    assert in_ring > 0
    assert in_ring / workers > 2 * loader.ring.depth


def test_batches_that_are_kept_on_a_cpu_outlive_the_ring():
    """As of a window whose parts are looked at before the first is learned from."""
    data = module(batch=4, workers=1, ring=True)
    loader = data.train_dataloader()
    kept = []
    for epoch in range(3):
        loader.keys.set_epoch(epoch)
        kept += [(data.on_after_batch_transfer(packed, 0), packed) for packed in loader]
    assert len(kept) > 2 * loader.ring.depth
    plain = module(batch=4)
    alone = [plain.on_after_batch_transfer(packed, 0) for epoch in range(3) for packed in epoch_of(plain.train_dataloader(), epoch)]
    for (ours, _), theirs in zip(kept, alone, strict=True):
        assert torch.equal(ours.images, theirs.images)
        assert torch.equal(ours.targets.boxes, theirs.targets.boxes)
    assert any(not torch.equal(packed.targets.boxes, batch.targets.boxes) for batch, packed in kept)  # the ring has moved on


@pytest.mark.parametrize(("device", "made"), [("cpu", False), ("cuda", True)])
def test_a_ring_is_for_the_device_that_trains(device, made, monkeypatch):
    data = module(batch=4, workers=1)
    assert data._ring() is None
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    data.trainer = SimpleNamespace(strategy=SimpleNamespace(root_device=torch.device(device)), global_rank=0, world_size=1)
    assert (data._ring() is not None) == made
    assert data._settings(warped=True)["pin_memory"] == made


def test_a_batch_that_does_not_fit_takes_the_ordinary_way():
    loader = module(batch=4, workers=2, ring=True).train_dataloader()
    loader.ring.capacity = 4096
    assert all(same(a, b) for a, b in zip(epoch_of(module(batch=4).train_dataloader(), 0), epoch_of(loader, 0), strict=True))


def test_pixels_drawn_in_a_slot_are_joined_there_without_a_copy():
    slot = Slot(torch.zeros(4000, dtype=torch.uint8), 128)
    first = [torch.from_numpy(slot.room(shape)).fill_(value) for value, shape in enumerate([(4, 5, 3), (10, 7, 3)], 1)]
    second = torch.full((3, 3, 3), 9, dtype=torch.uint8)  # a layer that lies elsewhere comes behind them
    joined = slot.pixels([*first, second])
    assert joined.data_ptr() == slot.memory.data_ptr() == first[0].data_ptr()
    assert joined.tolist() == [1] * 60 + [2] * 210 + [9] * 27
    assert slot.used == 320
    assert slot.take(4).data_ptr() == slot.memory.data_ptr() + 320


def test_pixels_that_do_not_fit_in_a_slot_leave_it():
    slot = Slot(torch.zeros(100, dtype=torch.uint8), 0)
    parts = [torch.from_numpy(slot.room(shape)) for shape in [(4, 5, 3), (10, 7, 3), (2, 2, 3)]]
    assert parts[1].data_ptr() != slot.memory.data_ptr() + 60
    assert slot.pixels(parts) is None
    assert slot.used == 0
    assert slot.pixels([torch.ones(40, 1, 3, dtype=torch.uint8)]) is None


def test_a_ring_that_would_take_much_of_the_memory_is_not_made(monkeypatch):
    monkeypatch.setattr("pellucid.data.ring.available_memory", lambda: 1 << 20)
    assert module(workers=2, ring=True).train_dataloader().ring is None


@QUIET
def test_only_the_wait_for_data_is_timed(monkeypatch):
    """What the device takes to be done with a batch is no wait for pictures."""
    loader = module(workers=1, ring=True).train_dataloader()
    monkeypatch.setattr(loader.ring, "release", lambda: time.sleep(0.5))
    batches = sum(1 for _ in loader)
    assert batches == 4
    assert 0 < loader.waited < 0.25 * batches
    fast = loader.waited
    stream = loader._stream
    loader._stream = (time.sleep(0.5) or packed for packed in stream)
    loader.keys.set_epoch(1)
    assert sum(1 for _ in loader) == batches
    assert loader.waited - fast > 0.49 * batches


def keypoint_module(root, yaml, **augment):
    rows = {"train": {"a": POSE_ROW, "b": POSE_ROW}, "val": {"v": POSE_ROW}}
    data = open_dataset(yolo(root, rows, yaml=f"names: [box]\nkpt_shape: [4, 3]\n{yaml}", width=96, height=96), ("boxes", "keypoints"))
    still = AugmentConfig(mosaic=0, scale=0, translate=0, hsv_h=0, hsv_s=0, hsv_v=0, **augment)
    return DataModule(data, TASKS["pose"](points=4), imgsz=S, batch=2, augment=still)


@pytest.mark.parametrize("flip", [{"fliplr": 1.0}, {"flipud": 1.0, "fliplr": 0}, {"fliplr": 1.0, "flipud": 1.0}])
def test_without_a_flip_map_nothing_is_mirrored_and_it_is_said_once(tmp_path, flip):
    made = keypoint_module(tmp_path, "", **flip)
    with pytest.warns(PellucidWarning, match="pictures are not mirrored") as caught:
        loader = made.train_dataloader()
    assert len(caught) == 1
    for part in [*loader, *loader]:  # a second warning would be an error
        assert part.targets.extras["keypoints"][0, 0].tolist() == [[24, 24, 2], [72, 24, 2], [24, 72, 2], [72, 72, 1]]


def test_with_a_flip_map_sides_change_places_in_a_mirror(tmp_path):
    (packed,) = keypoint_module(tmp_path, "flip_idx: [1, 0, 3, 2]\n", fliplr=1.0).train_dataloader()
    assert packed.targets.extras["keypoints"][0, 0].tolist() == [[24, 24, 2], [72, 24, 2], [24, 72, 1], [72, 72, 2]]


BOX, RING = "0 .5 .5 .5 .5\n", "0 .3 .3 .7 .3 .7 .7 .3 .7\n"
KINDS = {"detect": (("boxes",), BOX), "pose": (("boxes", "keypoints"), POSE_ROW), "obb": (("boxes", "rboxes"), RING)}


def pasting(root, needs, row, **augment):
    rows = {"train": {"a": row, "b": row}, "val": {"v": row}}
    yaml = "names: [box]\nkpt_shape: [4, 3]\nflip_idx: [1, 0, 3, 2]\n" if "keypoints" in needs else "names: [box]\n"
    data = open_dataset(yolo(root, rows, yaml=yaml, width=96, height=96), needs)
    task = next(name for name, make in TASKS.items() if make().needs == needs)
    still = AugmentConfig(mosaic=0, scale=0, translate=0, hsv_h=0, hsv_s=0, hsv_v=0, fliplr=0, **augment)
    return DataModule(data, TASKS[task](**data.task_args()), imgsz=S, batch=2, augment=still)


@pytest.mark.parametrize("kind", KINDS)
def test_copy_paste_without_outlines_is_left_out_and_that_is_said_once(tmp_path, kind):
    made = pasting(tmp_path, *KINDS[kind], copy_paste=1.0)
    with pytest.warns(PellucidWarning, match="nothing is pasted for copy_paste=1, since none of the 2 objects in 2 pictures") as caught:
        loader = made.train_dataloader()
    assert len(caught) == 1
    assert loader.dataset.config.copy_paste == 0
    assert [int(part.targets.valid.sum()) for part in [*loader, *loader]] == [2, 2]  # a second warning would be an error


@pytest.mark.parametrize(("needs", "row", "chance"), [(("boxes", "polygons"), RING, 1.0), (("boxes", "rboxes"), RING, 0.0)])
def test_copy_paste_that_can_be_or_is_off_says_nothing(tmp_path, needs, row, chance):
    assert pasting(tmp_path, needs, row, copy_paste=chance).train_dataloader().dataset.config.copy_paste == chance


def test_pictures_all_of_whose_objects_lack_an_outline_count_as_without(tmp_path):
    made = pasting(tmp_path, ("boxes", "polygons"), "", copy_paste=0.5)
    with pytest.warns(PellucidWarning, match="copy_paste=0.5, since none of the 0 objects in 2 pictures"):
        made.train_dataloader()


def test_data_that_are_not_mirrored_anyway_say_nothing(tmp_path):
    assert len(list(keypoint_module(tmp_path, "", fliplr=0).train_dataloader())) == 1
