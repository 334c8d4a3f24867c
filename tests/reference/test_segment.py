"""Segmentation: equal weights give equal outputs, equal outputs and targets equal losses."""

from dataclasses import replace

import pytest
import torch

from pellucid.assign.points import anchor_points
from pellucid.decode import top_rows
from pellucid.geometry.masks import pack_bits
from pellucid.tasks import TASKS
from pellucid.train.criterion import Criterion, combine
from pellucid.types import Dense, Output, Targets

from .oracle import LAYOUTS, image, load, reference_model, targets, their_key
from .test_detect import assert_close

NAME, ITEMS = "segment-n", ("box", "mask", "cls", "l1", "semantic")  # in their order
THEIRS = {"box": "box_loss", "mask": "seg_loss", "cls": "cls_loss", "l1": "l1_loss", "semantic": "sem_loss"}
PARTS = {"box": "boxes", "cls": "scores", "coefficients": "mask_coefficient"}


def mask_targets(layout: str) -> Targets:
    """The reference's objects; its index map gives every object its cells."""
    plain = targets(NAME, layout)
    index = torch.from_numpy(load(NAME)[1][f"loss/{layout}/masks"])  # (2, 32, 40), i is the i-th object of the image
    number = torch.arange(1, plain.valid.shape[1] + 1)[None, :, None, None]
    return replace(plain, extras={"masks": pack_bits((index[:, None] == number) & plain.valid[..., None, None])})


def test_the_layouts_hold_masks():
    filled = [mask_targets(layout).extras["masks"].count_nonzero().item() for layout in LAYOUTS if layout != "nothing"]
    assert min(filled) > 0
    assert max(filled) > 50


def test_keys_and_shapes_are_theirs():
    settings, _ = load(NAME)
    model, names = reference_model(NAME)
    theirs = {key: tuple(shape) for key, shape, _ in settings["keys"]}
    assert {names[n]: tuple(v.shape) for n, v in model.state_dict().items()} == theirs
    assert sum(".proto." in key for key in theirs) > 50


def test_outputs():
    _, arrays = load(NAME)
    model, _ = reference_model(NAME)
    with torch.no_grad():
        output = model(image())
    for ours, theirs in ((output.many, "one2many"), (output.one, "one2one")):
        for name, key in PARTS.items():
            assert_close(ours.outputs[name].mT, arrays[f"train/{theirs}/{key}"])
    assert_close(output.shared["proto"], arrays["train/one2many/proto/0"])
    assert_close(output.shared["semantic"], arrays["train/one2many/proto/1"])
    assert_close(output.shared["proto"], arrays["eval/0/1"])
    boxes = TASKS["segment"]().shapes(output.many.outputs, output.many.points, output.many.strides)["boxes"]
    low, high = boxes.chunk(2, -1)
    rows = torch.cat(((low + high) / 2, high - low, output.many.outputs["cls"].sigmoid(), output.many.outputs["coefficients"]), -1)
    assert_close(rows.mT, arrays["eval/0/0"])


def test_final_rows():
    """Each of our best rows of the one-to-one branch is among theirs, where an anchor may come again with a second class."""
    model, _ = reference_model(NAME)
    with torch.no_grad():
        ours = top_rows(model(image()).one, TASKS["segment"](), 100)
    rows = torch.cat((ours.values["boxes"], ours.scores[..., None], ours.labels[..., None], ours.values["coefficients"]), -1)
    theirs = torch.from_numpy(load(NAME)[1]["e2e/0/0"])
    scale = torch.tensor([100.0] * 4 + [1.0] * 34)
    distance = (rows[:, :, None] / scale - theirs[:, None] / scale).abs().amax(-1)  # (2, 100, 300)
    assert distance.amin(-1).max() < 1e-4
    assert distance.median() > 0.1


def raw_output() -> Output:
    _, arrays = load(NAME)
    points, strides = anchor_points([(16, 20), (8, 10), (4, 5)], (8, 16, 32), torch.device("cpu"))

    def branch(which: str) -> Dense:
        outputs = {name: torch.from_numpy(arrays[f"raw/{which}/{key}"]).mT.clone().requires_grad_() for name, key in PARTS.items()}
        return Dense(outputs, points, strides)

    shared = {name: torch.from_numpy(arrays[f"raw/one2many/proto/{i}"]).requires_grad_() for i, name in enumerate(("proto", "semantic"))}
    return Output(branch("one2many"), branch("one2one"), shared, (128, 160))


def check_losses(output: Output, layout: str) -> torch.Tensor:
    stated = load(NAME)[0]["loss"][layout]
    many, one = Criterion(TASKS["segment"]())(output, mask_targets(layout))
    items, of_many, of_one = one.items(), many.means(), one.means()
    for column, ours in enumerate(ITEMS):
        assert items[ours].item() == pytest.approx(stated["items"][THEIRS[ours]], rel=1e-4, abs=1e-9), ours
        whole = 2 * (0.8 * of_many[ours] + 0.2 * of_one[ours])
        assert whole.item() == pytest.approx(stated["total"][column], rel=1e-4, abs=1e-9), ours
    total = combine(many, one, torch.tensor(0.8), 2)
    assert total.item() == pytest.approx(sum(stated["total"]), rel=1e-4)
    return total


@pytest.mark.parametrize("layout", LAYOUTS)
def test_losses_of_their_outputs(layout):
    check_losses(raw_output(), layout)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_losses_and_gradients_of_the_whole_network(layout):
    model, _ = reference_model(NAME)
    model.zero_grad()
    check_losses(model(image(7)), layout).backward()
    stated = load(NAME)[0]["loss"][layout]["grad_norm"]
    ours = {their_key(n): p.grad for n, p in model.named_parameters()}
    assert len(stated) == 7
    for key, norm in stated.items():
        assert ours[key].norm().item() == pytest.approx(norm, rel=1e-3, abs=1e-6), key
