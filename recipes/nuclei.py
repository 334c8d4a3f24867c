"""Makes the samples `nuclei` and `nuclei-obb`: `python recipes/nuclei.py STARDIST.whl OUT`.

The wheel of stardist 0.9.2 (BSD-3) holds one fluorescence picture of 512x512 pixels and a map that numbers its nuclei. The picture is cut
into four tiles, the upper two for training, the lower two for validation. Outlines run along pixel edges and are thinned by at most half a
pixel; the oriented boxes are the smallest rectangles around the same pixels.
"""

from __future__ import annotations

import io
import json
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image

TILE = 256  # pixels
SPLITS = {"train": ((0, 0), (0, TILE)), "val": ((TILE, 0), (TILE, TILE))}  # top and left of each tile
LEAST_SIDE = 5  # pixels; the slivers of nuclei at the edge of a tile that are thinner are left out
SLACK = 0.5  # pixels that a thinned outline may run beside the true one


def rings(mask: np.ndarray) -> list[np.ndarray]:
    """Closed outlines (p, 2) of x, y of a boolean mask along pixel edges, clockwise around pixels, the other way around holes."""
    padded = np.pad(mask, 1)
    steps: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for dy, dx in ((-1, 0), (0, 1), (1, 0), (0, -1)):  # the neighbour over the upper, right, lower, left edge
        edge = padded & ~np.roll(padded, (-dy, -dx), (0, 1))
        for y, x in np.argwhere(edge).tolist():
            first = (x - 1 + (dx > 0 or dy > 0), y - 1 + (dy > 0 or dx < 0))
            steps.setdefault(first, []).append((-dy, dx))
    found = []
    while steps:
        start = place = next(iter(steps))
        ring, heading = [], (0, 0)
        while not ring or place != start:
            ring.append(place)
            ways = steps[place]
            turn = (-heading[1], heading[0])  # to the right, so that pixels that touch at a corner stay apart
            heading = ways.pop(ways.index(turn) if turn in ways else 0)
            if not ways:
                del steps[place]
            place = (place[0] + heading[0], place[1] + heading[1])
        found.append(np.array(ring, dtype=float))
    return found


def thinned(ring: np.ndarray, slack: float = SLACK) -> np.ndarray:
    """The ring without the points that lie within `slack` pixels of the line between those that stay (Douglas, Peucker 1973)."""
    first = int(ring.sum(1).argmin())
    ring = np.roll(ring, -first, 0)
    half = int(((ring - ring[0]) ** 2).sum(1).argmax())
    closed = np.concatenate((ring, ring[:1]))
    keep, work = {0, half}, [(0, half), (half, len(ring))]
    while work:
        a, b = work.pop()
        if b - a < 2:
            continue
        along = closed[b] - closed[a]
        away = closed[a + 1 : b] - closed[a]
        far = np.abs(along[0] * away[:, 1] - along[1] * away[:, 0]) / max(float(np.hypot(*along)), 1e-9)
        if far.max() > slack:
            middle = a + 1 + int(far.argmax())
            keep.add(middle)
            work += [(a, middle), (middle, b)]
    return ring[sorted(keep)]


def hull(points: np.ndarray) -> np.ndarray:
    """The convex hull (h, 2) of points (p, 2), in order (Andrew 1979)."""

    def chain(ordered: list[tuple[float, float]]) -> list[tuple[float, float]]:
        line: list[tuple[float, float]] = []
        for x, y in ordered:
            while len(line) > 1 and (line[-1][0] - line[-2][0]) * (y - line[-2][1]) <= (line[-1][1] - line[-2][1]) * (x - line[-2][0]):
                line.pop()
            line.append((x, y))
        return line[:-1]

    ordered = sorted(set(map(tuple, points.tolist())))
    return np.array(chain(ordered) + chain(ordered[::-1]))


def rectangle(points: np.ndarray) -> np.ndarray:
    """Corners (4, 2) of the rectangle of least area around points; one of its sides lies on a side of the hull (Freeman, Shapira 1975)."""
    corners = hull(points)
    sides = np.roll(corners, -1, 0) - corners
    angles = np.arctan2(sides[:, 1], sides[:, 0])
    along = np.stack((np.cos(angles), np.sin(angles)), 1)  # (h, 2)
    frames = np.stack((along, np.stack((-along[:, 1], along[:, 0]), 1)), 1)  # (h, axis, 2)
    seen = np.einsum("pc,hac->hap", corners, frames)
    low, high = seen.min(2), seen.max(2)
    best = int((high - low).prod(1).argmin())
    (x1, y1), (x2, y2) = low[best], high[best]
    return np.array([(x1, y1), (x2, y1), (x2, y2), (x1, y2)]) @ frames[best]


def nuclei(numbers: np.ndarray) -> Iterator[tuple[np.ndarray, list[np.ndarray]]]:
    """(mask, outlines) of each number of a tile, in order."""
    for number in np.unique(numbers[numbers > 0]).tolist():
        mask = numbers == number
        ys, xs = np.nonzero(mask)
        if min(np.ptp(ys), np.ptp(xs)) + 1 >= LEAST_SIDE:
            yield mask, rings(mask)


def area(ring: np.ndarray) -> float:
    """Area of a ring in pixels, negative around a hole."""
    x, y = ring.T
    return float((x * np.roll(y, -1) - y * np.roll(x, -1)).sum() / 2)


def coco_object(mask: np.ndarray, outlines: list[np.ndarray], **ids: int) -> dict:
    """A COCO annotation; the nuclei of this picture have no holes."""
    ys, xs = np.nonzero(mask)
    box = [int(xs.min()), int(ys.min()), int(np.ptp(xs)) + 1, int(np.ptp(ys)) + 1]
    parts = [thinned(ring).ravel().tolist() for ring in outlines if area(ring) > 0]
    return {**ids, "category_id": 1, "iscrowd": 0, "bbox": box, "area": int(mask.sum()), "segmentation": parts}


def obb_row(outlines: list[np.ndarray], size: int) -> str:
    """A YOLO row of nine fields: class, four corners as shares of the picture."""
    corners = rectangle(np.concatenate(outlines)) / size
    return "0 " + " ".join(f"{value:.6f}" for value in corners.ravel().tolist())


def write(split: str, picture: np.ndarray, numbers: np.ndarray, out: Path) -> None:
    """One split of both samples."""
    images, annotations = [], []
    for folder in (f"nuclei/{split}", "nuclei/annotations", f"nuclei-obb/images/{split}", f"nuclei-obb/labels/{split}"):
        (out / folder).mkdir(parents=True, exist_ok=True)
    for number, (top, left) in enumerate(SPLITS[split], 1):
        view, name = np.s_[top : top + TILE, left : left + TILE], f"nuclei-{top}-{left}"
        for folder in (f"nuclei/{split}", f"nuclei-obb/images/{split}"):
            Image.fromarray(picture[view]).save(out / folder / f"{name}.png", optimize=True)
        images.append({"id": number, "file_name": f"{name}.png", "width": TILE, "height": TILE})
        found = list(nuclei(numbers[view]))
        annotations += [coco_object(*each, id=len(annotations) + i, image_id=number) for i, each in enumerate(found, 1)]
        rows = [obb_row(outlines, TILE) for _, outlines in found]
        (out / "nuclei-obb" / "labels" / split / f"{name}.txt").write_text("\n".join(rows) + "\n")
    document = {"images": images, "categories": [{"id": 1, "name": "nucleus"}], "annotations": annotations}
    (out / "nuclei" / "annotations" / f"instances_{split}.json").write_text(json.dumps(document, separators=(",", ":")) + "\n")


def main(wheel: str, out: str) -> None:
    with zipfile.ZipFile(wheel) as archive:
        files = [archive.read(f"stardist/data/images/{name}2d.tif") for name in ("img", "mask")]
    picture, numbers = (np.asarray(Image.open(io.BytesIO(file))) for file in files)
    for split in SPLITS:
        write(split, picture.astype(np.uint8), numbers, Path(out))  # its values end at 235


if __name__ == "__main__":
    main(*sys.argv[1:])
