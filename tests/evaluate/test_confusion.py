from dataclasses import replace

import numpy as np
import pytest
import torch

from pellucid.evaluate import CocoMetric, ConfusionMatrix, CurveMeter
from tests.evaluate.fakes import instances, make_index, random_case

A, B, C = [0.0, 0, 40, 40], [100.0, 100, 160, 160], [200.0, 200, 260, 260]


def counted(truth, found, nc=3, **settings):
    matrix = ConfusionMatrix(nc, **settings)
    matrix.update(instances(*found), make_index([truth]).instances(0))
    return matrix.counts


def cells(counts):
    return {(int(p), int(t)): int(counts[p, t]) for p, t in zip(*counts.nonzero(), strict=True)}


def test_a_prediction_on_an_image_without_objects_is_counted():
    assert cells(counted([], ([1], [A], [0.9]))) == {(1, 3): 1}


def test_hit_confusion_miss_and_false_alarm():
    truth = [(0, A), (1, B), (2, C)]
    found = ([0, 2, 1, 1], [A, B, [300, 300, 340, 340], C], [0.9, 0.8, 0.7, 0.2])  # the last is below the threshold
    assert cells(counted(truth, found)) == {(0, 0): 1, (2, 1): 1, (1, 3): 1, (3, 2): 1}


def test_an_object_is_taken_once_by_the_best_score():
    assert cells(counted([(0, A)], ([1, 0], [A, A], [0.5, 0.9]))) == {(0, 0): 1, (1, 3): 1}


def test_the_second_choice_is_used_when_the_first_is_taken():
    beside = [12.0, 0, 52, 40]
    assert cells(counted([(0, A), (1, beside)], ([0, 1], [A, [2, 0, 42, 40]], [0.9, 0.8]))) == {(0, 0): 1, (1, 1): 1}


def test_ignored_regions_are_neither_missed_nor_false():
    truth = [(0, [0.0, 0, 200, 200], True), (1, C)]
    assert cells(counted(truth, ([0, 0, 1], [[10, 10, 40, 40], [90, 90, 120, 120], C], [0.9, 0.8, 0.7]))) == {(1, 1): 1}


def test_overlap_below_the_threshold_is_a_miss_and_a_false_alarm():
    assert cells(counted([(0, A)], ([0], [[25, 0, 65, 40]], [0.9]))) == {(0, 3): 1, (3, 0): 1}


def test_curves_against_counting_at_each_threshold():
    index, predictions = random_case(0, found=60)
    meter = CurveMeter(3)
    for p in predictions:
        meter.update(p.instances, index.instances(p.meta.row))
    curves = meter.compute(steps=21)
    for step in (0, 7, 13, 20):
        strict = CurveMeter(3)  # greedy matching by score does not depend on what lies below the threshold
        for p in predictions:
            kept = p.instances[p.instances.scores.double() >= curves.thresholds[step]]
            strict.update(kept, index.instances(p.meta.row))
        again = strict.compute(steps=2)
        np.testing.assert_allclose(curves.precision[:, step], again.precision[:, 0])
        np.testing.assert_allclose(curves.recall[:, step], again.recall[:, 0])
    assert (np.diff(curves.recall, axis=1) <= 0).all()
    assert curves.recall[:, 0].min() > 0.5
    threshold, f1 = curves.best()
    assert f1 == pytest.approx(curves.f1.mean(0).max())
    assert 0 < threshold < 1


def test_the_area_under_the_curve_is_near_the_coco_score():
    index, predictions = random_case(1, found=90)  # below 100: the protocol sees them all
    generator = torch.Generator().manual_seed(0)
    predictions = [replace(p, instances=replace(p.instances, scores=torch.rand(90, generator=generator))) for p in predictions]  # no ties
    metric, meter = CocoMetric(index), CurveMeter(3)
    metric.update(predictions)
    for p in predictions:
        meter.update(p.instances, index.instances(p.meta.row))
    curves = meter.compute(steps=20_001)
    grid = np.linspace(0, 1, 101)
    areas = [
        np.mean([p[(r >= level) & (r > 0)].max(initial=0) for level in grid]) for p, r in zip(curves.precision, curves.recall, strict=True)
    ]
    expected = [row["ap50"] for row in metric.per_class()]
    assert min(expected) > 0.03
    np.testing.assert_allclose(areas, expected, atol=2e-3)


def test_classes_without_objects_have_no_curve():
    meter = CurveMeter(3)
    meter.update(instances([0, 2], [A, B], [0.95, 0.6]), make_index([[(0, A)]]).instances(0))
    curves = meter.compute(steps=11)
    assert np.isnan(curves.recall[1:]).all()
    assert curves.recall[0].tolist() == [1.0] * 10 + [0.0]
    assert curves.precision[0].tolist() == [1.0] * 11
    assert curves.best() == (0.0, 1.0)
    assert np.isnan(CurveMeter(2).compute().best()).all()
    assert torch.tensor(curves.f1[0]).isfinite().all()
