"""Keypoints move with their picture, swap sides in a mirror, and are compared as COCO compares them."""

import json
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from pellucid.errors import DataError
from pellucid.geometry.affine import compose, rotation, scaling, translation
from pellucid.geometry.keypoints import (
    COCO_NAMES,
    COCO_SIGMAS,
    Keypoints,
    KeypointSpec,
    checked_flip,
    default_sigmas,
    flip_from_names,
    oks,
)

NAMED = [
    (["left_eye", "right_eye", "nose"], (1, 0, 2)),
    (["eye_left", "nose", "eye_right"], (2, 1, 0)),
    (["l_eye", "r_eye"], (1, 0)),
    (["eye_l", "eye_r"], (1, 0)),
    (["L_EYE", "R_EYE"], (1, 0)),
    (["LEye", "REye", "LEar", "REar"], (1, 0, 3, 2)),
    (["leftEye", "rightEye"], (1, 0)),
    (["EyeL", "EyeR"], (1, 0)),
    (["left front paw", "right front paw", "left back paw", "right back paw"], (1, 0, 3, 2)),
    (["lefteye", "righteye", "tail"], (1, 0, 2)),
    (["L1", "R1", "L2", "R2"], (1, 0, 3, 2)),
    (["bright", "blight"], None),
    (["head", "tail"], None),
    (["left_eye", "nose"], None),  # no partner: a mirror would show a right eye that has no name
    (["left_eye", "right_eye", "left_ear"], None),
    (["p", "q", "r"], None),
    (["left", "LEFT", "right"], None),  # two of one name
]


def some(n: int = 3, k: int = 4, flip: tuple[int, ...] | None = (1, 0, 2, 3)) -> Keypoints:
    points = torch.rand(n, k, 2, generator=torch.Generator().manual_seed(0)) * 90 + 5
    return Keypoints(torch.cat((points, torch.full((n, k, 1), 2.0)), -1), flip)


@pytest.mark.parametrize(("names", "expected"), NAMED)
def test_flip_pairs_from_names(names, expected):
    assert flip_from_names(names) == expected


def test_flip_pairs_of_coco():
    assert flip_from_names(COCO_NAMES) == (0, *(i + (1 if i % 2 else -1) for i in range(1, 17)))


@given(st.permutations(COCO_NAMES))
def test_flip_pairs_follow_the_names_in_any_order(names):
    flip = flip_from_names(names)
    swap = {"left": "right", "right": "left"}
    assert [names[i] for i in flip] == ["_".join(swap.get(word, word) for word in name.split("_")) for name in names]


@pytest.mark.parametrize("flip", [(1, 2, 0), (0, 0, 1), (0, 1), (0, 1, 3), (1, 0, 2, 3)])
def test_a_map_that_does_not_swap_pairs_is_refused(flip):
    with pytest.raises(DataError, match="flip map: expected the numbers 0 to 2, each pair"):
        checked_flip(flip, 3)
    with pytest.raises(DataError):
        KeypointSpec.make(3, flip=flip)


def test_spec_fills_in_and_survives_json():
    spec = KeypointSpec.make(3, names=["left_eye", "right_eye", "nose"], skeleton=[[0, 2], [1, 2]])
    assert (spec.flip, spec.sigmas, spec.points) == ((1, 0, 2), (1 / 3,) * 3, 3)
    assert KeypointSpec(**json.loads(json.dumps(spec.to_dict()))) == spec
    assert KeypointSpec.make(3).flip is None
    assert KeypointSpec.make(17).sigmas == KeypointSpec.make(17, names=COCO_NAMES).sigmas == COCO_SIGMAS


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"points": 0}, "at least one point"),
        ({"dims": 4}, "2 or 3 numbers"),
        ({"names": ["a"]}, "names: expected 3, got 1"),
        ({"sigmas": [0.1, 0.1]}, "sigmas: expected 3 numbers"),
        ({"sigmas": [0.1, 0.1, 0.0]}, "above 0"),
        ({"skeleton": [[1, 3]]}, "below 3"),
    ],
)
def test_spec_refuses_what_does_not_fit(wrong, message):
    with pytest.raises(DataError, match=message):
        KeypointSpec.make(**{"points": 3, **wrong})


def test_default_sigmas_are_coco_for_a_person_alone():
    assert default_sigmas(17) == COCO_SIGMAS
    assert default_sigmas(17, 2) == (1 / 17,) * 17
    assert default_sigmas(17, 3, [f"paw{i}" for i in range(17)]) == (1 / 17,) * 17
    assert default_sigmas(5) == (0.2,) * 5
    assert len(COCO_SIGMAS) == 17


def test_a_mirror_swaps_pairs_and_a_turn_does_not():
    points = some()
    mirror = compose(translation(100, 0), scaling(-1, 1))
    mirrored = points.warp(mirror)
    assert torch.allclose(mirrored.data[:, 0, 0], 100 - points.data[:, 1, 0])
    assert torch.allclose(mirrored.data[:, 2, 0], 100 - points.data[:, 2, 0])
    assert torch.allclose(mirrored.warp(mirror).data, points.data, atol=1e-4)
    half_turn = compose(translation(100, 100), scaling(-1, -1))
    assert torch.allclose(points.warp(half_turn).data[..., :2], 100 - points.data[..., :2], atol=1e-4)
    unpaired = Keypoints(points.data)
    assert torch.allclose(unpaired.warp(mirror).data[:, 0, 0], 100 - points.data[:, 0, 0])


def test_absent_points_stay_nowhere_whatever_they_hold():
    data = some().data.clone()
    data[0, 1] = torch.tensor([torch.nan, torch.inf, 0.0])
    moved = Keypoints(data).warp(translation(5, 5)).clip(100, 100)
    assert moved.data[0, 1].tolist() == [0, 0, 0]
    assert torch.isfinite(moved.data).all()
    assert torch.isfinite(moved.bounds()).all()


def test_clip_drops_labelled_points_and_moves_predicted_ones():
    data = torch.tensor([[[-3.0, 5, 2], [5, 5, 1], [40, 5, 2], [10, 20, 2]]])
    clipped = Keypoints(data).clip(20, 30).data[0]
    assert clipped.tolist() == [[0, 0, 0], [5, 5, 1], [0, 0, 0], [10, 20, 2]]
    found = Keypoints(torch.cat((data[..., :2], torch.full((1, 4, 1), 0.7)), -1), predicted=True).clip(20, 30).data[0]
    assert found[:, :2].tolist() == [[0, 5], [5, 5], [30, 5], [10, 20]]
    assert (found[:, 2] == 0.7).all()


def test_bounds_hold_the_points_that_are_there():
    points = some().data.clone()
    points[0, 0] = 0
    points[2] = 0
    bounds = Keypoints(points).bounds()
    assert bounds[0].tolist() == [*points[0, 1:, :2].amin(0).tolist(), *points[0, 1:, :2].amax(0).tolist()]
    assert bounds[2].tolist() == [0, 0, 0, 0]
    assert Keypoints.empty().bounds().shape == (0, 4)
    assert Keypoints.empty(5).bounds().shape == (0, 4)


def test_pieces_without_rows_never_decide_the_number_of_points():
    points = some()
    joined = Keypoints.cat([Keypoints.empty(), points, Keypoints.empty(4)])
    assert torch.equal(joined.data, points.data)
    assert joined.flip == points.flip
    assert Keypoints.cat([Keypoints.empty(), Keypoints.empty(4)]).data.shape == (0, 4, 3)
    with pytest.raises(DataError, match=r"one number of points, got \[4, 5\]"):
        Keypoints.cat([points, some(k=5)])


def test_the_protocol_of_shapes():
    points = some()
    assert (len(points), len(points[:2])) == (3, 2)
    assert points[torch.tensor([True, False, True])].flip == points.flip
    assert points.visible(10, 10).tolist() == [1, 1, 1]
    assert Keypoints.extent is False
    assert torch.equal(pickle.loads(pickle.dumps(points)).data, points.data)
    turned = points.warp(rotation(0.7)).warp(rotation(-0.7))
    assert torch.allclose(turned.data, points.data, atol=1e-4)


@pytest.mark.parametrize("k", [5, 17])
def test_oks_equals_pycocotools(k):
    rng = np.random.default_rng(k)
    truth = np.concatenate((rng.uniform(20, 80, (6, k, 2)), rng.integers(0, 3, (6, k, 1))), -1)
    truth[:, 0, 2] = 2  # without a labelled point the tool compares something else
    found = truth + np.concatenate((rng.normal(0, 6, (6, k, 2)), np.zeros((6, k, 1))), -1)
    area = rng.uniform(500, 3000, 6)
    annotations = [
        {
            "id": i + 1,
            "image_id": i,
            "category_id": 1,
            "iscrowd": 0,
            "area": area[i],
            "bbox": [0, 0, 9, 9],
            "keypoints": truth[i].ravel().tolist(),
            "num_keypoints": int((truth[i, :, 2] > 0).sum()),
        }
        for i in range(6)
    ]
    coco = COCO()
    coco.dataset = {"images": [{"id": i} for i in range(6)], "categories": [{"id": 1}], "annotations": annotations}
    coco.createIndex()
    results = coco.loadRes(
        [{"image_id": i, "category_id": 1, "score": 0.5, "keypoints": found[i].ravel().tolist(), "bbox": [0, 0, 9, 9]} for i in range(6)]
    )
    tool = COCOeval(coco, results, "keypoints")
    tool.params.kpt_oks_sigmas = np.array(default_sigmas(k))
    tool.evaluate()
    theirs = [float(tool.ious[i, 1][0, 0]) for i in range(6)]
    ours = oks(torch.from_numpy(found), torch.from_numpy(truth), torch.from_numpy(area), torch.tensor(default_sigmas(k)).double())
    assert 0.05 < min(theirs) < 0.95
    assert ours.tolist() == pytest.approx(theirs, rel=1e-6)


def test_oks_ignores_absent_points_and_is_0_without_any():
    truth = some().data.clone()
    truth[:, 0] = torch.tensor([torch.nan, torch.nan, 0.0])
    truth[1, :, 2] = 0
    found = truth[..., :2].nan_to_num(55.0).requires_grad_()
    value = oks(found, truth, torch.full((3,), 400.0), torch.full((4,), 0.25))
    assert value.tolist() == [1, 0, 1]
    value.sum().backward()
    assert torch.isfinite(found.grad).all()
