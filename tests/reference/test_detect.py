"""The same method, as a measured statement: equal weights give equal outputs, equal outputs and targets give equal losses."""

import pytest
import torch

from pellucid.assign.points import anchor_points
from pellucid.tasks import TASKS
from pellucid.train.criterion import Criterion, combine
from pellucid.types import Dense, Output

from .oracle import LAYOUTS, image, load, reference_model, targets, their_key

MODELS = ("detect-n", "detect-m")


def assert_close(ours: torch.Tensor, theirs, tolerance: float = 1e-4) -> None:
    theirs = torch.as_tensor(theirs)
    assert ours.shape == theirs.shape
    assert theirs.abs().max() > 0
    assert (ours - theirs).abs().max() <= tolerance * theirs.abs().max()


@pytest.mark.parametrize("name", MODELS)
def test_keys_and_shapes_are_theirs(name):
    settings, _ = load(name)
    model, names = reference_model(name)
    theirs = {key: tuple(shape) for key, shape, _ in settings["keys"]}
    assert {names[n]: tuple(v.shape) for n, v in model.state_dict().items()} == theirs
    assert len(theirs) > 700


@pytest.mark.parametrize("name", MODELS)
def test_outputs(name):
    _, arrays = load(name)
    model, _ = reference_model(name)
    with torch.no_grad():
        output = model(image())
    for ours, theirs in ((output.many, "one2many"), (output.one, "one2one")):
        assert_close(ours.outputs["box"].mT, arrays[f"train/{theirs}/boxes"])
        assert_close(ours.outputs["cls"].mT, arrays[f"train/{theirs}/scores"])
    boxes = TASKS["detect"]().shapes(output.many.outputs, output.many.points, output.many.strides)["boxes"]
    low, high = boxes.chunk(2, -1)
    assert_close(torch.cat(((low + high) / 2, high - low, output.many.outputs["cls"].sigmoid()), -1).mT, arrays["eval/0"])


def raw_output(name: str) -> Output:
    _, arrays = load(name)
    points, strides = anchor_points([(16, 20), (8, 10), (4, 5)], (8, 16, 32), torch.device("cpu"))

    def branch(which: str) -> Dense:
        boxes, scores = (torch.from_numpy(arrays[f"raw/{which}/{part}"]).mT.clone().requires_grad_() for part in ("boxes", "scores"))
        return Dense({"cls": scores, "box": boxes}, points, strides)

    return Output(branch("one2many"), branch("one2one"), {}, (128, 160))


def check_losses(output: Output, name: str, layout: str) -> torch.Tensor:
    settings, _ = load(name)
    stated = settings["loss"][layout]
    many, one = Criterion(TASKS["detect"]())(output, targets(name, layout))
    items = one.items()
    for ours, theirs in (("box", "box_loss"), ("cls", "cls_loss"), ("l1", "l1_loss")):
        assert items[ours].item() == pytest.approx(stated["items"][theirs], rel=1e-4, abs=1e-9)
        whole = 2 * (0.8 * many.sums[ours] / many.weight.clamp(min=1) + 0.2 * one.sums[ours] / one.weight.clamp(min=1))
        assert whole.item() == pytest.approx(stated["total"][("box", "cls", "l1").index(ours)], rel=1e-4, abs=1e-9)
    total = combine(many, one, torch.tensor(0.8), 2)
    assert total.item() == pytest.approx(sum(stated["total"]), rel=1e-4)
    return total


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", MODELS)
def test_losses_of_their_outputs(name, layout):
    check_losses(raw_output(name), name, layout)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_losses_and_gradients_of_the_whole_network(layout):
    model, _ = reference_model("detect-n")
    model.zero_grad()
    check_losses(model(image(7)), "detect-n", layout).backward()
    stated = load("detect-n")[0]["loss"][layout]["grad_norm"]
    ours = {their_key(n): p.grad for n, p in model.named_parameters()}
    assert len(stated) == 7
    for key, norm in stated.items():
        assert ours[key].norm().item() == pytest.approx(norm, rel=1e-3, abs=1e-6), key
