"""Small data sets on disk for the readers' tests."""

import json
from pathlib import Path

import numpy as np
from PIL import Image

EXIF_ORIENTATION = 0x0112


def picture(path: Path, width=60, height=40, color=(90, 120, 30), orientation=None) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.new("RGB", (width, height), color)
    exif = Image.Exif()
    if orientation:
        exif[EXIF_ORIENTATION] = orientation
    image.save(path, exif=exif)
    return path


def text(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def yolo(root: Path, rows: dict[str, dict[str, str | None]], yaml="names: [cat, dog]\n", **options) -> Path:
    """rows {split: {stem: label text or None}} -> the data.yaml."""
    for split, labels in rows.items():
        for stem, content in labels.items():
            picture(root / "images" / split / f"{stem}.jpg", **options)
            if content is not None:
                text(root / "labels" / split / f"{stem}.txt", content)
        yaml += f"{split}: images/{split}\n"
    return text(root / "data.yaml", yaml)


def coco(root: Path, split: str, images: list[dict], annotations: list[dict], categories: list[dict], name="instances") -> Path:
    """Writes {name}_{split}.json; an image's own size is 60x40 and it is painted unless it says `paint: False`."""
    for image in images:
        if image.pop("paint", True):
            picture(root / split / image["file_name"])
    document = {"images": images, "annotations": annotations, "categories": categories}
    return text(root / "annotations" / f"{name}_{split}.json", json.dumps(document))


def labelme(root: Path, split: str, stem: str, shapes: list[dict], paint=True, **fields) -> Path:
    """Writes {split}/{stem}.json and its picture, 60x40."""
    if paint:
        picture(root / split / f"{stem}.jpg")
    document = {"version": "5.5.0", "imagePath": f"{stem}.jpg", "imageData": None, "imageHeight": 40, "imageWidth": 60, "shapes": shapes}
    return text(root / split / f"{stem}.json", json.dumps({**document, **fields}))


def voc(root: Path, stems: dict[str, dict[str, str]], database="Unknown") -> Path:
    """stems {split: {stem: XML of its objects}} -> the folder."""
    for split, pages in stems.items():
        for stem, objects in pages.items():
            picture(root / "JPEGImages" / f"{stem}.jpg")
            size = "<size><width>60</width><height>40</height><depth>3</depth></size>"
            page = f"<annotation><source><database>{database}</database></source>{size}{objects}</annotation>"
            text(root / "Annotations" / f"{stem}.xml", page)
        text(root / "ImageSets" / "Main" / f"{split}.txt", "\n".join(pages))
    return root


def voc_object(name, x1, y1, x2, y2, difficult=0) -> str:
    corners = f"<xmin>{x1}</xmin><ymin>{y1}</ymin><xmax>{x2}</xmax><ymax>{y2}</ymax>"
    return f"<object><name>{name}</name><difficult>{difficult}</difficult><bndbox>{corners}</bndbox></object>"


def codes(findings) -> dict[str, int]:
    found: dict[str, int] = {}
    for finding in findings:
        found[finding.code] = found.get(finding.code, 0) + finding.count
    return found


def boxes(index, row) -> list[list[float]]:
    return np.round(index.instances(row).shapes["boxes"].data.double().numpy(), 3).tolist()
