"""A file of rows without fault is read at once: the same objects and findings as row after row, and only where nothing is to be said."""

import numpy as np
import pytest
from PIL import Image

from pellucid.data.readers import read_dataset, yolo

KINDS = {"boxes": ("boxes",), "polygons": ("boxes", "polygons"), "rboxes": ("boxes", "rboxes"), "keypoints": ("boxes", "keypoints")}
FILES = 60


def shares(draw, kind):
    """A row's values: mostly inside the picture, some over its edge, some slips."""
    box = [*draw.uniform(0.3, 0.7, 2), *draw.uniform(0.1, 0.6, 2)]
    slip = draw.random()
    if slip < 0.05:
        box[0], box[2] = ((0.02, 0.5), (0.4995, 1.0), (1.3, 0.1), (np.nan, 0.2))[draw.integers(4)]  # the second: within rounding
    if kind == "boxes":
        return box
    if kind == "polygons":
        values = draw.uniform(0.0, 1.0, 2 * draw.integers(3, 9))
        values[::2] = 0.5 if slip < 0.02 else values[::2]
        return values + 0.9 if slip > 0.96 else values
    if kind == "rboxes":
        turn, (w, h) = draw.uniform(0, np.pi), draw.uniform(0.05, 0.3, 2)
        axes = np.array([[np.cos(turn), np.sin(turn)], [-np.sin(turn), np.cos(turn)]]) * [[w], [h]]
        corners = draw.uniform(0.1, 0.9, 2) + np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]]) @ axes / [64 / 48, 1]
        if slip < 0.06:
            corners[0] += draw.uniform(0.05, 1.0, 2)
        return corners.reshape(-1)
    seen = draw.choice([0, 1, 2], 4, p=[0.1, 0.3, 0.6])
    if slip < 0.02:
        seen = seen * 0 if slip < 0.01 else seen + 2
    points = np.column_stack((draw.uniform(0, 1.01 if slip < 0.1 else 1, (4, 2)), seen))
    return [*box, *points.reshape(-1)]


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


@pytest.fixture
def source(kind, tmp_path):
    draw = np.random.default_rng(3)
    for part in ("images/train", "labels/train"):
        (tmp_path / part).mkdir(parents=True)
    for number in range(FILES):
        Image.new("RGB", (64, 48)).save(tmp_path / f"images/train/{number:02}.png")
        rows = [f"{draw.integers(3)} " + " ".join(f"{value:.5f}" for value in shares(draw, kind)) for _ in range(draw.integers(1, 7))]
        rows += ["", "  "] if number % 3 else []
        rows += ["7 " + rows[0][2:]] if number == 5 else ["1_0 0.5 0.5 0.1 0.1"] if number == 6 else ["0 0.5"] if number == 7 else []
        (tmp_path / f"labels/train/{number:02}.txt").write_text("\n".join(rows))
    shape = "kpt_shape: [4, 3]\nflip_idx: [1, 0, 2, 3]\n" if kind == "keypoints" else ""
    (tmp_path / "data.yaml").write_text(f"train: images/train\nnames: [a, b, c]\n{shape}")
    return tmp_path / "data.yaml"


def test_the_same_as_row_after_row(kind, source, monkeypatch):
    found, plain = [], yolo.read_plain

    def watched(*given):
        found.append(plain(*given))
        return found[-1]

    monkeypatch.setattr(yolo, "read_plain", watched)
    at_once = read_dataset(source, KINDS[kind]).splits["train"]
    assert FILES // 4 < sum(part is not None for part in found) < FILES - 1  # neither road is idle
    monkeypatch.setattr(yolo, "read_plain", lambda *given: None)
    by_row = read_dataset(source, KINDS[kind]).splits["train"]
    assert at_once.findings == by_row.findings
    assert {finding.code for finding in by_row.findings} >= {"class-id", "row-number", "row-fields"}
    assert len(by_row.labels) > 2 * FILES
    for name in ("sizes", "ids", "start", "labels", "boxes", "ignore"):
        assert np.array_equal(getattr(at_once, name), getattr(by_row, name)), name
    assert at_once.columns.keys() == by_row.columns.keys()
    for name, column in by_row.columns.items():
        assert np.array_equal(at_once.columns[name].start, column.start), name
        close = {"rtol": 1e-6, "atol": 0} if name == "area" else {"rtol": 0, "atol": 0}  # sums run in another order
        np.testing.assert_allclose(at_once.columns[name].values, column.values, **close)
