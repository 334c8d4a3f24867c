"""Makes the sample `quokka`: `python recipes/quokka.py IMGAUG.whl SCIKIT_IMAGE.whl OUT [train=48] [val=23] [seed=0] [own_val=1]`.

The quokka of the imgaug 0.4.0 wheel (MIT: photo, outline, 7 points) is cut out and pasted at random scale, place, turn and mirroring onto
photos of the scikit-image 0.26.0 wheel, those alone that its documentation calls CC0 or public domain. Validation has other photos than
training, and the photo that the quokka is from; `own_val=0` takes the training photos for validation too, so that weights can be chosen
without a look at the rest.
"""

from __future__ import annotations

import io
import json
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

SIZE = 320  # pixels, width and height of every picture
PHOTOS = {
    "train": ("brick.png", "chelsea.png", "clock_motion.png", "grass.png", "retina.jpg", "rocket.jpg"),
    "val": ("coffee.png", "gravel.png", "hubble_deep_field.jpg"),
}
COUNTS = (0, 1, 1, 1, 2, 2, 3)  # quokkas in a picture, each as likely
HEIGHTS = (70, 260)  # pixels of a quokka
TURN = 50  # degrees, either way
HIDDEN = 0.4  # share of a quokka that later ones may cover
POINTS = ("ear_tip_left", "ear_tip_right", "eye_left", "eye_right", "nose", "paw_left", "paw_right")
FLIP = (1, 0, 3, 2, 4, 6, 5)
SKELETON = ((1, 3), (2, 4), (3, 5), (4, 5), (5, 6), (5, 7))  # from 1, as COCO has it
SIGMAS = (0.05, 0.05, 0.03, 0.03, 0.03, 0.05, 0.05)


@dataclass(frozen=True)
class Quokka:
    """A cut-out with its alpha, and its labels in the pixels of the cut-out."""

    picture: Image.Image  # RGBA
    points: np.ndarray  # (7, 2)
    outline: np.ndarray  # (p, 2)


@dataclass(frozen=True)
class Placed:
    """One quokka in a picture."""

    cover: np.ndarray  # (SIZE, SIZE) bool: where it is, seen or hidden
    points: np.ndarray  # (7, 2)
    outline: np.ndarray  # (p, 2)


def cut_out(photo: Image.Image, labels: dict) -> Quokka:
    """The quokka without what lies around it; its edge is soft over about two pixels."""
    outline = np.array([(point["x"], point["y"]) for point in labels["polygons"][0]["keypoints"]], dtype=float)
    points = np.array([(point["x"], point["y"]) for point in labels["keypoints"]], dtype=float)
    alpha = Image.new("L", photo.size)
    ImageDraw.Draw(alpha).polygon(list(map(tuple, outline)), fill=255)
    photo = photo.convert("RGB")
    photo.putalpha(alpha.filter(ImageFilter.GaussianBlur(1.5)))
    left, top = outline.min(0).astype(int) - 4
    right, bottom = outline.max(0).astype(int) + 4
    return Quokka(photo.crop((left, top, right, bottom)), points - (left, top), outline - (left, top))


def background(photo: Image.Image, rng: np.random.Generator) -> Image.Image:
    """A square of the photo of random size, place, mirroring, brightness and tint, without what shows where the photo ends."""
    side = int(min(photo.size) * rng.uniform(0.5, 1))
    left, top = (int(rng.integers(0, length - side + 1)) for length in photo.size)
    view = photo.convert("RGB").crop((left, top, left + side, top + side)).resize((SIZE, SIZE), Image.Resampling.LANCZOS)
    return tinted(view.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if rng.random() < 0.5 else view, rng)


def tinted(picture: Image.Image, rng: np.random.Generator) -> Image.Image:
    """The picture with each channel multiplied by a number near one and the same for all."""
    gains = rng.uniform(0.75, 1.25) * rng.uniform(0.9, 1.1, 3)
    values = np.asarray(picture).astype(np.float32)
    values[..., :3] *= gains
    return Image.fromarray(values.clip(0, 255).astype(np.uint8), picture.mode)


def pose(quokka: Quokka, rng: np.random.Generator) -> np.ndarray:
    """The 3x3 matrix that takes the cut-out to a random pose in the picture, mirrored every second time."""
    width, height = quokka.picture.size
    scale = rng.uniform(*HEIGHTS) / height
    angle = np.deg2rad(rng.uniform(-TURN, TURN))
    mirror = -1 if rng.random() < 0.5 else 1
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]) @ np.diag((mirror, 1)) * scale
    middle = rng.uniform(0.1, 0.9, 2) * SIZE
    matrix = np.eye(3)
    matrix[:2, :2], matrix[:2, 2] = turn, middle - turn @ (width / 2, height / 2)
    return matrix


def moved(points: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    return points @ matrix[:2, :2].T + matrix[:2, 2]


def paste(picture: Image.Image, quokka: Quokka, matrix: np.ndarray, rng: np.random.Generator) -> tuple[Image.Image, Placed]:
    """The picture with one more quokka, drawn on two by two pixels for each of the picture, so that shrinking does not alias."""
    back = np.linalg.inv(np.diag((2, 2, 1)) @ matrix)
    layer = tinted(quokka.picture, rng).transform(
        (2 * SIZE, 2 * SIZE), Image.Transform.AFFINE, tuple(back[:2].ravel()), Image.Resampling.BICUBIC
    )
    layer = layer.resize((SIZE, SIZE), Image.Resampling.BOX)
    points = moved(quokka.points, matrix)
    points = points[list(FLIP)] if np.linalg.det(matrix) < 0 else points
    picture = Image.alpha_composite(picture.convert("RGBA"), layer).convert("RGB")
    return picture, Placed(np.asarray(layer)[..., 3] > 127, points, moved(quokka.outline, matrix))


def compose(photo: Image.Image, quokka: Quokka, rng: np.random.Generator) -> tuple[Image.Image, list[Placed]]:
    """A picture with as many quokkas as were drawn, fewer if one would hide too much of another or lie mostly outside."""
    picture, placed = background(photo, rng), []
    for _ in range(int(rng.choice(COUNTS))):
        tried, one = paste(picture, quokka, matrix := pose(quokka, rng), rng)
        whole = quokka.picture.size[0] * quokka.picture.size[1] * abs(np.linalg.det(matrix))
        hides = [(one.cover & other.cover).sum() / other.cover.sum() for other in placed]
        if one.cover.sum() > 0.4 * whole and all(share <= HIDDEN for share in hides):
            picture, placed = tried, [*placed, one]
    return picture, placed


def annotation(one: Placed, later: list[Placed], **ids: int) -> dict:
    """COCO keypoints; visibility 2 seen, 1 behind another quokka, 0 outside the picture. The outline includes what is hidden."""
    inside = ((one.points >= 0) & (one.points < SIZE)).all(1)
    x, y = one.points.clip(0, SIZE - 1).astype(int).T
    hidden = np.any([other.cover[y, x] for other in later], 0) if later else np.zeros(len(x), bool)
    seen = np.where(inside, np.where(hidden, 1, 2), 0)
    points = np.round(one.points, 1) * (seen > 0)[:, None]
    ys, xs = np.nonzero(one.cover)
    box = [int(xs.min()), int(ys.min()), int(np.ptp(xs)) + 1, int(np.ptp(ys)) + 1]
    return {
        **ids,
        "category_id": 1,
        "iscrowd": 0,
        "bbox": box,
        "area": int(one.cover.sum()),
        "segmentation": [np.round(cut(one.outline), 1).ravel().tolist()],
        "num_keypoints": int((seen > 0).sum()),
        "keypoints": np.column_stack((points, seen)).ravel().tolist(),
    }


def cut(outline: np.ndarray) -> np.ndarray:
    """The part of an outline inside the picture (Sutherland, Hodgman 1974)."""
    for axis in (0, 1):
        for sign, limit in ((1, 0.0), (-1, -float(SIZE))):
            side = sign * outline[:, axis] - limit
            after, beyond = np.roll(outline, -1, 0), np.roll(side, -1)
            kept = []
            for point, following, here, there in zip(outline, after, side, beyond, strict=True):
                kept += [point] if here >= 0 else []
                kept += [point + (following - point) * here / (here - there)] if (here >= 0) != (there >= 0) else []
            outline = np.array(kept)
    return outline


def whole_photo(photo: Image.Image, labels: dict) -> tuple[Image.Image, Placed]:
    """The quokka's own photo, its left square, with the labels that were drawn on it by hand."""
    side = photo.height
    points, outline = (
        np.array([(p["x"], p["y"]) for p in part], float) * SIZE / side
        for part in (labels["keypoints"], labels["polygons"][0]["keypoints"])
    )
    cover = Image.new("1", (SIZE, SIZE))
    ImageDraw.Draw(cover).polygon(list(map(tuple, outline)), fill=1)
    picture = photo.convert("RGB").crop((0, 0, side, side)).resize((SIZE, SIZE), Image.Resampling.LANCZOS)
    return picture, Placed(np.asarray(cover), points, outline)


def write(split: str, pictures: list[tuple[str, Image.Image, list[Placed]]], out: Path) -> None:
    """Pictures and annotations of one split."""
    images, annotations = [], []
    for folder in (split, "annotations"):
        (out / folder).mkdir(parents=True, exist_ok=True)
    for number, (source, picture, placed) in enumerate(pictures, 1):
        name = f"{number:04d}-{source}.jpg"
        picture.save(out / split / name, quality=85)
        images.append({"id": number, "file_name": name, "width": SIZE, "height": SIZE, "background": source})
        for i, one in enumerate(placed):
            annotations.append(annotation(one, placed[i + 1 :], id=len(annotations) + 1, image_id=number))
    category = {"id": 1, "name": "quokka", "keypoints": POINTS, "flip_idx": FLIP, "skeleton": SKELETON}
    document = {"images": images, "categories": [category], "annotations": annotations}
    (out / "annotations" / f"keypoints_{split}.json").write_text(json.dumps(document, separators=(",", ":")) + "\n")


def describe(out: Path) -> None:
    """The data.yaml."""
    lines = ["# A quokka with outline and 7 points, pasted onto photos; paths are relative to this file", "path: ."]
    for split in PHOTOS:
        lines += [f"{split}: {split}", f"{split}_json: annotations/keypoints_{split}.json"]
    lines.append(f"kpt_sigmas: {list(SIGMAS)}")
    (out / "data.yaml").write_text("\n".join(lines) + "\n")


def main(imgaug: str, scikit_image: str, out: str, **options: int) -> None:
    options = {"train": 48, "val": 23, "seed": 0, "own_val": 1} | options
    with zipfile.ZipFile(imgaug) as archive:
        original = Image.open(io.BytesIO(archive.read("imgaug/quokka.jpg")))
        labels = json.loads(archive.read("imgaug/quokka_annotations.json"))
    with zipfile.ZipFile(scikit_image) as archive:
        photos = {name: Image.open(io.BytesIO(archive.read(f"skimage/data/{name}"))) for names in PHOTOS.values() for name in names}
    quokka = cut_out(original, labels)
    Path(out).mkdir(parents=True, exist_ok=True)
    describe(Path(out))
    for number, split in enumerate(PHOTOS):
        rng = np.random.default_rng((options["seed"], number))
        names = PHOTOS[split if options["own_val"] else "train"]
        names = [names[i % len(names)] for i in range(options[split])]
        made = [(Path(name).stem, *compose(photos[name], quokka, rng)) for name in names]
        if split == "val" and options["own_val"]:
            picture, placed = whole_photo(original, labels)
            made.append(("own-photo", picture, [placed]))
        write(split, made, Path(out))


if __name__ == "__main__":
    main(*sys.argv[1:4], **{key: int(value) for key, value in (word.split("=") for word in sys.argv[4:])})
