"""A small YOLO data set of drawn squares, made once."""

import numpy as np
import pytest
from PIL import Image


def make_squares(folder, train=10, val=4, objects=True, classes=2):
    """Pictures of 64 x 64 with one or two bright squares each; returns the data.yaml."""
    draws = np.random.default_rng(0)
    for split, count in (("train", train), ("val", val)):
        (folder / "images" / split).mkdir(parents=True)
        (folder / "labels" / split).mkdir(parents=True)
        for number in range(count):
            image = draws.integers(0, 80, (64, 64, 3), dtype=np.uint8)
            rows = []
            for _ in range(1 + number % 2 if objects else 0):
                label, side = int(draws.integers(classes)), int(draws.integers(16, 32))
                x, y = (int(v) for v in draws.integers(0, 64 - side, 2))
                image[y : y + side, x : x + side, label] = 255
                rows.append(f"{label} {(x + side / 2) / 64} {(y + side / 2) / 64} {side / 64} {side / 64}")
            Image.fromarray(image).save(folder / "images" / split / f"{number}.png")
            (folder / "labels" / split / f"{number}.txt").write_text("\n".join(rows))
    names = "".join(f"  {number}: kind{number}\n" for number in range(classes))
    (folder / "data.yaml").write_text(f"path: .\ntrain: images/train\nval: images/val\nnames:\n{names}")
    return folder / "data.yaml"


def make_kind(folder, kind, **counts):
    """As `make_squares`, with label rows of another kind: "polygons", "keypoints" (4 corners) or "rboxes", from the same squares."""
    path = make_squares(folder, **counts)
    for label in (folder / "labels").rglob("*.txt"):
        rows = [[float(word) for word in row.split()] for row in label.read_text().splitlines()]
        label.write_text("\n".join(" ".join(map(str, _row(kind, *row))) for row in rows))
    if kind == "keypoints":
        path.write_text(path.read_text() + "kpt_shape: [4, 3]\nflip_idx: [1, 0, 3, 2]\n")
    return path


def _row(kind, label, x, y, w, h):
    corners = [(x - w / 2, y - h / 2), (x + w / 2, y - h / 2), (x + w / 2, y + h / 2), (x - w / 2, y + h / 2)]
    if kind == "keypoints":
        return [int(label), x, y, w, h, *(value for corner in corners for value in (*corner, 2))]
    if kind == "rboxes":  # the middles of the upper and lower half of the sides: a rectangle that stands on its corner
        corners = [(x, y - h / 2), (x + w / 4, y - h / 4), (x - w / 4, y + h / 4), (x - w / 2, y)]
    return [int(label), *(value for corner in corners for value in corner)]


@pytest.fixture(scope="session")
def squares(tmp_path_factory):
    return make_squares(tmp_path_factory.mktemp("squares"))


@pytest.fixture(scope="session")
def backgrounds(tmp_path_factory):
    return make_squares(tmp_path_factory.mktemp("backgrounds"), objects=False)
