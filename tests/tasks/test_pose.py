"""The pose task: what is compared, what is taught, and what batches of real life bring."""

import inspect
import math
import pickle

import numpy as np
import pytest
import torch

from pellucid.assign import aligned
from pellucid.assign.points import anchor_points
from pellucid.data.collate import targets as collated
from pellucid.errors import DataError, UsageError
from pellucid.geometry import Boxes
from pellucid.geometry.boxes import box_ciou
from pellucid.geometry.keypoints import COCO_SIGMAS, Keypoints, oks
from pellucid.models.build import build
from pellucid.models.flow import RealNVP
from pellucid.tasks import TASKS
from pellucid.tasks.pose import PERSON_WEIGHTS, keypoint_similarity, level_window
from pellucid.train.criterion import Criterion, combine
from pellucid.types import Dense, Instances, Output, Targets

S = 128
POINTS, STRIDES = anchor_points([(16, 16), (8, 8), (4, 4)], (8, 16, 32), torch.device("cpu"))
BOXES = torch.tensor([[10.0, 12, 60, 55], [70, 30, 120, 120], [20, 70, 50, 120]])


def people(k: int = 17, seen: tuple[bool, ...] = (True, True, False), boxes: torch.Tensor = BOXES) -> Instances:
    """Objects with points spread over their boxes; of those not `seen` none is labelled."""
    place = boxes[:, None, :2] + torch.rand(len(boxes), k, 2, generator=torch.Generator().manual_seed(k)) * (
        boxes[:, None, 2:] - boxes[:, None, :2]
    )
    labelled = torch.tensor(seen)[:, None, None] * torch.full((len(boxes), k, 1), 2.0)
    shapes = {"boxes": Boxes(boxes), "keypoints": Keypoints(torch.cat((place, labelled), -1))}
    return Instances(torch.zeros(len(boxes), dtype=torch.int64), shapes)


def nobody(k: int = 17) -> Instances:
    return Instances(torch.zeros(0, dtype=torch.int64), {"boxes": Boxes.empty(), "keypoints": Keypoints.empty(k)})


def network(task, batch: int = 2) -> Output:
    torch.manual_seed(0)
    return build("n", 1, task.stems, task.shared, task.training_only)(torch.rand(batch, 3, S, S))


def free_output(task, nc: int = 1) -> Output:
    """Both branches as one set of numbers that can be moved freely, near what an untrained network gives."""
    draw = torch.Generator().manual_seed(0)
    channels = {"cls": nc} | {name: count for stem in task.stems for name, count in stem.outputs.items()}
    outputs = {name: 0.1 * torch.randn(1, len(POINTS), count, generator=draw) for name, count in channels.items()}
    outputs["box"] += 2
    outputs = {name: value.requires_grad_() for name, value in outputs.items()}
    flow = RealNVP() if task.shared else None
    return Output(Dense(outputs, POINTS, STRIDES), Dense(outputs, POINTS, STRIDES), {} if flow is None else flow(()), (S, S))


def test_arguments_are_the_fields_and_survive_a_pickle():
    parameters = inspect.signature(TASKS["pose"]).parameters
    assert {"points", "dims", "sigmas", "flip", "point_names", "skeleton", "box", "l1", "l1_units", "pose", "kobj", "rle"} <= set(
        parameters
    )
    assert all(parameter.default is not inspect.Parameter.empty for parameter in parameters.values())
    task = TASKS["pose"](points=3, point_names=["left_eye", "right_eye", "nose"], skeleton=[[0, 2], [1, 2]], rle_form="single")
    again = pickle.loads(pickle.dumps(task))
    assert again.stems == task.stems
    rows = {"boxes": torch.zeros(2, 4), "keypoints": torch.zeros(2, 3, 3)}
    assert again.finish(rows, {})["keypoints"].skeleton == ((0, 2), (1, 2))


@pytest.mark.parametrize(
    ("told", "error", "message"),
    [
        ({"flip": [1, 2, 0], "points": 3}, DataError, "flip map: expected the numbers 0 to 2"),
        ({"sigmas": [0.1], "points": 3}, DataError, "sigmas: expected 3"),
        ({"dims": 4}, DataError, "2 or 3 numbers"),
        ({"rle_form": "triple"}, UsageError, "rle_form: expected double or single"),
        ({"rle_floor": "none"}, UsageError, "rle_floor: expected loss or sigma"),
        ({"l1_units": "mile"}, UsageError, "l1_units: expected image or stride"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(told, error, message):
    with pytest.raises(error, match=message):
        TASKS["pose"](**told)


def test_joint_weights_and_sigmas_are_a_persons_where_it_is_a_person():
    def of(**told):
        task = TASKS["pose"](**told)
        terms = {term.name: term.loss.keywords for term in task.terms if term.name in ("pose", "rle")}
        return terms["pose"]["sigmas"], terms["rle"]["joints"]

    mouse = [f"paw{i}" for i in range(17)]
    assert of() == (COCO_SIGMAS, PERSON_WEIGHTS)
    assert of(point_names=mouse) == ((1 / 17,) * 17, (1.0,) * 17)
    assert of(dims=2) == ((1 / 17,) * 17, (1.0,) * 17)
    assert of(points=4, sigmas=[0.1, 0.2, 0.3, 0.4]) == ((0.1, 0.2, 0.3, 0.4), (1.0,) * 4)
    assert sum(PERSON_WEIGHTS) == pytest.approx(9 + 4 * 1.2 + 4 * 1.5)


@pytest.mark.parametrize(
    ("side", "levels"), [(10, {8}), (15, {8}), (40, {8, 16}), (64, {8, 16, 32}), (100, {16, 32}), (128, {16, 32}), (250, {32})]
)
def test_a_level_answers_for_objects_of_2_to_12_strides(side, levels):
    """The smallest level has no lower limit, the largest no upper one."""
    box = torch.tensor([[[64 - side / 2, 64 - side / 2, 64 + side / 2, 64 + side / 2]]])
    inside = level_window(POINTS, STRIDES, {"boxes": box})[0, 0]
    assert set(STRIDES[inside].int().tolist()) == levels
    long = box + torch.tensor([side / 4, -side, -side / 4, side])  # the same area within rounding: half as wide, three times as high
    assert level_window(POINTS, STRIDES, {"boxes": long})[0, 0].any()


def test_similarity_is_oks_and_ciou_where_no_point_is_labelled():
    task, objects = TASKS["pose"](), people()
    shapes = {name: value.detach() for name, value in task.shapes(free_output(task).many.outputs, POINTS, STRIDES).items()}
    truth = {"boxes": objects.shapes["boxes"].data[None], "keypoints": objects.shapes["keypoints"].data[None]}
    ours = keypoint_similarity(shapes, truth, COCO_SIGMAS)[0]  # (3, A)
    w, h = (BOXES[:, 2:] - BOXES[:, :2]).unbind(-1)
    for i in (0, 1):
        points = truth["keypoints"][0, i]
        expected = oks(shapes["keypoints"][0], points, 0.53 * w[i] * h[i], torch.tensor(COCO_SIGMAS))
        torch.testing.assert_close(ours[i], expected)
    torch.testing.assert_close(ours[2], box_ciou(shapes["boxes"][0], BOXES[2]).clamp(min=0))
    assert ours.amax(1).min() > 1e-3


@pytest.mark.parametrize("chunk", [1, 5000, 1 << 24])
def test_a_crowd_costs_time_and_not_memory(chunk, monkeypatch):
    """The assignment of many objects is the same however few are compared at once."""
    task = TASKS["pose"](points=20)
    corner = torch.rand(40, 2, generator=torch.Generator().manual_seed(0)) * 80
    targets = collated([people(20, (True,) * 40, torch.cat((corner, corner + 30), -1))], S, task.targets)
    dense = free_output(task).many
    shapes = {name: value.detach() for name, value in task.shapes(dense.outputs, POINTS, STRIDES).items()}
    seen: list[int] = []

    def watched(predicted, truth):
        seen.append(truth["boxes"].shape[1])
        return task.overlap.similarity(predicted, truth)

    overlap = type(task.overlap)(watched, task.overlap.inside, cost=task.overlap.cost, far=task.overlap.far)
    plain = aligned.align(dense, shapes, {}, targets, overlap, 10)
    seen.clear()
    monkeypatch.setattr(aligned, "CHUNK", chunk)
    again = aligned.align(dense, shapes, {}, targets, overlap, 10)
    assert max(seen) * len(POINTS) * 4 * 20 <= max(chunk, len(POINTS) * 4 * 20)
    assert plain.valid.sum() > 40
    assert all(torch.equal(getattr(plain, name), getattr(again, name)) for name in ("anchor", "object", "weight", "valid"))


def test_images_that_disagree_with_the_task_in_their_points_are_refused():
    task = TASKS["pose"](points=5)
    with pytest.raises(DataError, match="expected objects of 5 points, as the model has, got 17"):
        collated([people(17)], S, task.targets)
    with pytest.raises(DataError, match=r"one number of points, got \[4, 17\]"):
        Instances.cat([people(17), people(4)])


@pytest.mark.parametrize("empty", [Keypoints.empty(), Keypoints.empty(17)])
def test_images_with_and_without_objects_share_a_batch(empty):
    task = TASKS["pose"]()
    without = Instances(torch.zeros(0, dtype=torch.int64), {"boxes": Boxes.empty(), "keypoints": empty})
    for batch in ([people(), without], [without, people()], [without, without]):
        targets = collated(batch, S, task.targets)
        assert targets.extras["keypoints"].shape == (2, 4, 17, 3)
        many, one = Criterion(task)(network(task), targets)
        taught = bool(targets.valid.any())
        for branch in (many, one):
            means = branch.means()
            assert all(torch.isfinite(value) for value in means.values())
            assert (means["pose"] > 0) == (means["box"] > 0) == (means["rle"] > 0) == taught
            assert means["cls"] > 0


def test_a_batch_of_backgrounds_teaches_classes_alone_and_stays_differentiable():
    task = TASKS["pose"]()
    torch.manual_seed(0)
    model = build("n", 1, task.stems, task.shared, task.training_only)
    many, one = Criterion(task)(model(torch.rand(4, 3, S, S)), collated([nobody()] * 4, S, task.targets))
    means = [branch.means() for branch in (many, one)]
    assert all(part[name] == 0 for part in means for name in ("box", "l1", "pose", "kobj", "rle"))
    combine(many, one, torch.tensor(0.5), 4).backward()
    gradients = {name: p.grad for name, p in model.named_parameters()}
    assert all(g is not None and torch.isfinite(g).all() for g in gradients.values())
    assert all(g.abs().max() == 0 for name, g in gradients.items() if name.startswith("shared.flow"))
    assert gradients["many.classes.0.2.weight"].abs().max() > 0


def test_objects_without_a_labelled_point_teach_boxes_only():
    """Beside their visibility: that nothing of them is labelled is known."""
    task = TASKS["pose"]()
    output = free_output(task)
    many, _ = Criterion(task)(output, collated([people(seen=(False,) * 3)], S, task.targets))
    means = many.means()
    assert means["box"] > 0
    assert means["kobj"] > 0
    assert means["pose"] == means["rle"] == 0
    gradients = torch.autograd.grad(many.total(), [output.many.outputs[name] for name in ("box", "points", "sigma")])
    assert gradients[0].abs().max() > 0
    assert gradients[1].unflatten(-1, (17, 3))[..., :2].abs().max() == 0
    assert gradients[1].unflatten(-1, (17, 3))[..., 2].abs().max() > 0
    assert gradients[2].abs().max() == 0


def test_what_stands_at_absent_points_changes_nothing():
    task, results = TASKS["pose"](), []
    for held in (0.0, math.nan):
        objects = people(seen=(True,) * 3)
        data = objects.shapes["keypoints"].data
        data[:, ::2] = torch.tensor([held, held, 0.0])
        output = free_output(task)
        targets = Targets(objects.labels[None], torch.ones(1, 3, dtype=torch.bool), BOXES[None], {"keypoints": data[None]})
        torch.manual_seed(0)
        many, one = Criterion(task)(Output(output.many, output.one, RealNVP()(()), (S, S)), targets)
        total = combine(many, one, torch.tensor(0.8), 1)
        results.append((total.detach(), *torch.autograd.grad(total, list(output.many.outputs.values()))))
    assert torch.isfinite(results[0][0])
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


def test_both_branches_teach_the_flow_and_only_one_the_trunk():
    task = TASKS["pose"]()
    torch.manual_seed(0)
    model = build("n", 1, task.stems, task.shared, task.training_only)
    many, one = Criterion(task)(model(torch.rand(2, 3, S, S)), collated([people()] * 2, S, task.targets))
    for branch, trunk in ((many, True), (one, False)):
        model.zero_grad()
        branch.total().backward(retain_graph=True)
        taught = {name.split(".")[0] for name, p in model.named_parameters() if p.grad is not None and p.grad.abs().max() > 0}
        assert "shared" in taught
        assert ("backbone" in taught) == trunk


def test_far_objects_teach_only_if_asked():
    boxes = torch.tensor([[[50.0, 50, 70, 70]]])
    keypoints = torch.cat((torch.full((1, 1, 17, 2), 1e6), torch.full((1, 1, 17, 1), 2.0)), -1)
    targets = Targets(torch.zeros(1, 1, dtype=torch.int64), torch.ones(1, 1, dtype=torch.bool), boxes, {"keypoints": keypoints})
    for far in (False, True):
        task = TASKS["pose"](teach_far=far)
        many, _ = Criterion(task)(free_output(task), targets)
        assert (many.means()["pose"] > 0) == far
        assert many.means()["box"] == 0


def learn(steps: int = 200, **told) -> tuple[np.ndarray, np.ndarray, float]:
    """Losses and similarities while the outputs for one picture are learned freely, and the last likelihood loss."""
    task = TASKS["pose"](points=5, **told)
    output, objects = free_output(task), people(5, (True,) * 3)
    targets, criterion = collated([objects], S, task.targets), Criterion(task)
    truth = {"boxes": BOXES[None], "keypoints": objects.shapes["keypoints"].data[None]}
    window = level_window(POINTS, STRIDES, truth)
    torch.manual_seed(0)
    flow = RealNVP()
    optimizer = torch.optim.Adam(
        [{"params": list(output.one.outputs.values()), "lr": 0.1}, {"params": list(flow.parameters()), "lr": 0.005}]
    )
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.01, steps)
    losses, similar = [], []
    for _ in range(steps):
        _, one = criterion(Output(output.many, output.one, flow(()), (S, S)), targets)
        optimizer.zero_grad()
        one.total().backward()
        optimizer.step()
        schedule.step()
        shapes = {name: value.detach() for name, value in task.shapes(output.one.outputs, POINTS, STRIDES).items()}
        found = keypoint_similarity(shapes, truth, (0.2,) * 5)
        losses.append(one.total().item())
        similar.append(torch.where(window, found, 0.0).amax(-1).mean().item())
    return np.array(losses), np.array(similar), one.means()["rle"].item()


@pytest.mark.parametrize("told", [{}, {"rle_floor": "sigma"}, {"rle_floor": "sigma", "rle_form": "single"}])
def test_similarity_does_not_fall_while_the_loss_falls(told):
    losses, similar, likelihood = learn(**told)
    assert np.isfinite(losses).all()
    assert losses[-1] < losses[100] < losses[0]
    assert similar[-20:].min() > 0.93
    assert similar[-20:].min() >= similar[:100].max() - 0.01
    assert (likelihood < 0) == bool(told)


def test_a_floor_of_the_loss_stops_learning_where_a_floor_of_sigma_goes_on():
    """From the likelihood alone: clamped at 0 its gradients die before the points are where they should be."""
    _, stopped, at_floor = learn(pose=0.0)
    _, going_on, below = learn(pose=0.0, rle_floor="sigma", rle_form="single")
    assert at_floor == 0
    assert below < -1
    assert stopped[-1] - stopped[-60] < 0.01
    assert going_on[-1] > stopped[-1]
