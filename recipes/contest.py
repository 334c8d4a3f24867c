"""Training data for the nuclei weights that ship: `python recipes/contest.py NUCLEI OUT`.

NUCLEI is a COCO folder of the 2018 Data Science Bowl, stage 1 (CC0), its pictures named after their contest ids. Its training pictures and
the training tiles of the sample become OUT/segment (COCO outlines) and OUT/obb (YOLO rows of nine fields); validation is the contest's
own. The picture that the sample is a part of is left out, so that no pixel of the sample's validation tiles is in the result.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from nuclei import LEAST_SIDE, rectangle, rings

from pellucid.data.samples import sample_path

HELD_OUT = "4dbbb275960ab9e4"  # equal to the sample's picture: normalised correlation 0.996 for parts of it, 0.945 for the next picture


def polygons(annotation: dict, size: tuple[int, int]) -> list[list[float]]:
    """Outer outlines of an annotation whose mask is a list of polygons or uncompressed runs."""
    found = annotation["segmentation"]
    if isinstance(found, list):
        return found
    values = np.repeat(np.arange(len(found["counts"])) % 2, found["counts"]).astype(bool)
    return [ring.ravel().tolist() for ring in rings(values.reshape(size[::-1]).T)]


def entries(folder: Path, split: str) -> Iterator[tuple[Path, dict, list[dict]]]:
    """(picture, its image entry, its annotations) of a split, the picture held out left aside."""
    document = json.loads((folder / "annotations" / f"instances_{split}.json").read_text())
    owned: dict[int, list[dict]] = {image["id"]: [] for image in document["images"]}
    for annotation in document["annotations"]:
        owned[annotation["image_id"]].append(annotation)
    for image in document["images"]:
        path = folder / split / image["file_name"]
        if path.stem != HELD_OUT:
            yield path, image, owned[image["id"]]


def rows(annotations: list[dict], width: int, height: int) -> Iterator[str]:
    """YOLO rows of nine fields."""
    for annotation in annotations:
        points = np.concatenate([np.reshape(part, (-1, 2)) for part in polygons(annotation, (height, width))])
        if min(np.ptp(points, 0)) >= LEAST_SIDE:
            corners = rectangle(points) / (width, height)
            yield "0 " + " ".join(f"{value:.6f}" for value in corners.ravel().tolist())


def write(split: str, sources: list[tuple[Path, str]], out: Path) -> None:
    """One split of both forms."""
    images, annotations = [], []
    for folder in (f"segment/{split}", "segment/annotations", f"obb/images/{split}", f"obb/labels/{split}"):
        (out / folder).mkdir(parents=True, exist_ok=True)
    for folder, part in sources:
        for path, image, own in entries(folder, part):
            number, width, height = len(images) + 1, image["width"], image["height"]
            for target in (out / "segment" / split, out / "obb" / "images" / split):
                shutil.copyfile(path, target / path.name)
            images.append({"id": number, "file_name": path.name, "width": width, "height": height})
            annotations += [{**each, "id": len(annotations) + i, "image_id": number, "category_id": 1} for i, each in enumerate(own, 1)]
            (out / "obb" / "labels" / split / f"{path.stem}.txt").write_text("\n".join(rows(own, width, height)))
    document = {"images": images, "categories": [{"id": 1, "name": "nucleus"}], "annotations": annotations}
    (out / "segment" / "annotations" / f"instances_{split}.json").write_text(json.dumps(document))


def main(contest: str, out: str) -> None:
    write("train", [(Path(contest), "train"), (sample_path("nuclei").parent, "train")], Path(out))
    write("val", [(Path(contest), "val")], Path(out))
    data = "path: .\ntrain: images/train\nval: images/val\nnames:\n  0: nucleus\n"
    (Path(out) / "obb" / "data.yaml").write_text(data)


if __name__ == "__main__":
    main(*sys.argv[1:])
