"""Oriented boxes: equal weights give equal outputs, equal outputs and targets equal losses."""

from dataclasses import replace

import pytest
import torch

from pellucid.assign.points import anchor_points
from pellucid.decode import top_rows
from pellucid.tasks import TASKS
from pellucid.train.criterion import Criterion, combine
from pellucid.types import Dense, Output, Targets

from .oracle import LAYOUTS, image, load, reference_model, targets, their_key
from .test_detect import assert_close

NAME, ITEMS = "obb-n", ("box", "cls", "l1", "angle")


def rotated_targets(layout: str) -> Targets:
    """The reference's objects: centre and sides over the image's width and height, and the angle."""
    plain = targets(NAME, layout)
    _, arrays = load(NAME)
    rboxes = torch.zeros(*plain.valid.shape, 5)
    rows = torch.from_numpy(arrays[f"loss/{layout}/bboxes"]) * torch.tensor([160.0, 128, 160, 128, 1])
    rboxes[plain.valid] = rows[torch.from_numpy(arrays[f"loss/{layout}/batch_idx"]).argsort(stable=True)].float()
    return replace(plain, extras={"rboxes": rboxes})


def test_the_layouts_hold_turned_objects():
    angles = [rotated_targets(layout).extras["rboxes"][..., 4] for layout in LAYOUTS if layout != "nothing"]
    assert all(part.abs().max() > 0.1 for part in angles)


def test_keys_and_shapes_are_theirs():
    settings, _ = load(NAME)
    model, names = reference_model(NAME)
    theirs = {key: tuple(shape) for key, shape, _ in settings["keys"]}
    assert {names[n]: tuple(v.shape) for n, v in model.state_dict().items()} == theirs
    assert sum("cv4" in key for key in theirs) == 84


def test_outputs():
    _, arrays = load(NAME)
    model, _ = reference_model(NAME)
    with torch.no_grad():
        output = model(image())
    for ours, theirs in ((output.many, "one2many"), (output.one, "one2one")):
        for name, key in (("box", "boxes"), ("cls", "scores"), ("angle", "angle")):
            assert_close(ours.outputs[name].mT, arrays[f"train/{theirs}/{key}"])
    shapes = TASKS["obb"]().shapes(output.many.outputs, output.many.points, output.many.strides)
    rboxes, scores = shapes["rboxes"], output.many.outputs["cls"].sigmoid()
    assert_close(torch.cat((rboxes[..., :4], scores, rboxes[..., 4:]), -1).mT, arrays["eval/0"])


def test_final_rows():
    """Each of our best rows of the one-to-one branch is among theirs, where an anchor may come again with a second class."""
    model, _ = reference_model(NAME)
    with torch.no_grad():
        ours = top_rows(model(image()).one, TASKS["obb"](), 100)
    rows = torch.cat((ours.values["rboxes"][..., :4], ours.scores[..., None], ours.labels[..., None], ours.values["rboxes"][..., 4:]), -1)
    theirs = torch.from_numpy(load(NAME)[1]["e2e/0"])
    scale = torch.tensor([100, 100, 100, 100, 1, 1, 1])
    distance = (rows[:, :, None] / scale - theirs[:, None] / scale).abs().amax(-1)  # (2, 100, 300)
    assert distance.amin(-1).max() < 1e-4
    assert distance.median() > 0.1
    assert ours.labels.unique().numel() > 2


def raw_output() -> Output:
    _, arrays = load(NAME)
    points, strides = anchor_points([(16, 20), (8, 10), (4, 5)], (8, 16, 32), torch.device("cpu"))

    def branch(which: str) -> Dense:
        parts = {"cls": "scores", "box": "boxes", "angle": "angle"}
        outputs = {name: torch.from_numpy(arrays[f"raw/{which}/{key}"]).mT.clone().requires_grad_() for name, key in parts.items()}
        return Dense(outputs, points, strides)

    return Output(branch("one2many"), branch("one2one"), {}, (128, 160))


def check_losses(output: Output, layout: str) -> torch.Tensor:
    stated = load(NAME)[0]["loss"][layout]
    many, one = Criterion(TASKS["obb"]())(output, rotated_targets(layout))
    first, second = many.means(), one.means()
    for place, name in enumerate(ITEMS):
        assert second[name].item() == pytest.approx(stated["items"][f"{name}_loss"], rel=1e-4, abs=1e-8)
        whole = 2 * (0.8 * first[name] + 0.2 * second[name])
        assert whole.item() == pytest.approx(stated["total"][place], rel=1e-4, abs=1e-8)
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
