"""Pose: equal weights give equal outputs, equal outputs and targets equal losses."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from pellucid.assign.points import anchor_points
from pellucid.decode import top_rows
from pellucid.models.flow import COUPLINGS, FLOW_OUTPUTS, RealNVP
from pellucid.tasks import TASKS
from pellucid.train.criterion import Criterion, combine
from pellucid.types import Dense, Output, Targets

from .oracle import LAYOUTS, image, load, reference_model, targets, their_key
from .test_detect import assert_close

NAME, ITEMS = "pose-n", ("box", "pose", "kobj", "cls", "l1", "rle")
PARTS = {"cls": "scores", "box": "boxes", "points": "kpts", "sigma": "kpts_sigma"}


def pose_targets(layout: str) -> Targets:
    """The reference's objects: keypoints as x, y over the image's width and height, and visibility."""
    plain = targets(NAME, layout)
    _, arrays = load(NAME)
    keypoints = torch.zeros(*plain.valid.shape, 17, 3)
    rows = torch.from_numpy(arrays[f"loss/{layout}/keypoints"]) * torch.tensor([160.0, 128, 1])
    keypoints[plain.valid] = rows[torch.from_numpy(arrays[f"loss/{layout}/batch_idx"]).argsort(stable=True)]
    return replace(plain, extras={"keypoints": keypoints})


def test_the_layouts_hold_absent_points_and_an_object_without_any():
    keypoints = [pose_targets(layout) for layout in LAYOUTS if layout != "nothing"]
    seen = torch.cat([part.extras["keypoints"][part.valid][..., 2] > 0 for part in keypoints])
    assert 0.1 < (~seen).float().mean() < 0.9
    assert seen.any(1).sum() > 20


def test_keys_and_shapes_are_theirs_beside_what_is_fixed():
    settings, arrays = load(NAME)
    model, names = reference_model(NAME)
    theirs = {key: tuple(shape) for key, shape, fixed in settings["keys"] if not fixed}
    assert {names[n]: tuple(v.shape) for n, v in model.state_dict().items()} == theirs
    fixed = {key.rsplit(".", 1)[1]: arrays[f"fixed/{key}"] for key, _, fixed in settings["keys"] if fixed}
    assert np.array_equal(fixed["mask"], [[0, 1], [1, 0]] * (COUPLINGS // 2))
    assert np.array_equal(fixed["cov"], np.eye(2))
    assert np.array_equal(fixed["loc"], [0, 0])
    assert sum(p.numel() for p in RealNVP().parameters()) == 53_784


def test_outputs():
    _, arrays = load(NAME)
    model, _ = reference_model(NAME)
    with torch.no_grad():
        output = model(image())
    for ours, theirs in ((output.many, "one2many"), (output.one, "one2one")):
        for name, key in PARTS.items():
            assert_close(ours.outputs[name].mT, arrays[f"train/{theirs}/{key}"])
    shapes = TASKS["pose"]().shapes(output.many.outputs, output.many.points, output.many.strides)
    low, high = shapes["boxes"].chunk(2, -1)
    scores = output.many.outputs["cls"].sigmoid()
    assert_close(torch.cat(((low + high) / 2, high - low, scores, shapes["keypoints"].flatten(2)), -1).mT, arrays["eval/0"])


def test_final_rows():
    """Each of our best rows of the one-to-one branch is among theirs."""
    model, _ = reference_model(NAME)
    with torch.no_grad():
        ours = top_rows(model(image()).one, TASKS["pose"](), 100)
    rows = torch.cat((ours.values["boxes"], ours.scores[..., None], ours.labels[..., None], ours.values["keypoints"].flatten(2)), -1)
    theirs = torch.from_numpy(load(NAME)[1]["e2e/0"])
    scale = torch.tensor([100.0] * 4 + [1] * 2 + [100, 100, 1] * 17)
    distance = (rows[:, :, None] / scale - theirs[:, None] / scale).abs().amax(-1)  # (2, 100, 300)
    assert distance.amin(-1).max() < 1e-4
    assert distance.median() > 0.1
    assert ours.labels.unique().numel() == 2


def raw_output() -> Output:
    _, arrays = load(NAME)
    points, strides = anchor_points([(16, 20), (8, 10), (4, 5)], (8, 16, 32), torch.device("cpu"))

    def branch(which: str) -> Dense:
        outputs = {name: torch.from_numpy(arrays[f"raw/{which}/{key}"]).mT.clone().requires_grad_() for name, key in PARTS.items()}
        return Dense(outputs, points, strides)

    flow = reference_model(NAME)[0].shared["flow"](())
    assert set(flow) == set(FLOW_OUTPUTS)
    return Output(branch("one2many"), branch("one2one"), flow, (128, 160))


def check_losses(output: Output, layout: str, tolerance: float = 1e-4) -> torch.Tensor:
    stated = load(NAME)[0]["loss"][layout]
    many, one = Criterion(TASKS["pose"]())(output, pose_targets(layout))
    first, second = many.means(), one.means()
    for place, name in enumerate(ITEMS):
        assert second[name].item() == pytest.approx(stated["items"][f"{name}_loss"], rel=tolerance, abs=1e-8), name
        whole = 2 * (0.8 * first[name] + 0.2 * second[name])
        assert whole.item() == pytest.approx(stated["total"][place], rel=tolerance, abs=1e-8), name
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
    tolerance = 2e-4 if layout == "tiny" else 1e-4  # there q grows with the seventh power of a similarity of 0.02: the next test
    check_losses(model(image(7)), layout, tolerance).backward()
    stated = load(NAME)[0]["loss"][layout]["grad_norm"]
    ours = {their_key(n): p.grad for n, p in model.named_parameters()}
    assert len(stated) == 7
    for key, norm in stated.items():
        assert ours[key].norm().item() == pytest.approx(norm, rel=1e-3, abs=1e-6), key


def test_what_is_left_where_similarities_are_smallest_is_the_rounding_of_float32():
    """In float64 the two terms that q weighs come as close to theirs as everything else."""
    stated = load(NAME)[0]["loss"]["tiny"]["items"]
    with torch.no_grad():
        output = reference_model(NAME)[0].double()(image(7).double())
        found = Criterion(TASKS["pose"]())(output, pose_targets("tiny"))[1].means()
    for name in ("box", "l1"):
        assert found[name].item() == pytest.approx(stated[f"{name}_loss"], rel=1e-4), name
