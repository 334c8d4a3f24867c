"""Objects drawn on pictures: one painter per type of shape, class colours, labels that can be read; and sheets of small pictures."""

from __future__ import annotations

import colorsys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import repeat
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from .geometry import Boxes, Rle
from .geometry.affine import scaling, translation
from .geometry.keypoints import SHOWN, Keypoints
from .geometry.masks import Masks
from .geometry.polygons import Polygons
from .geometry.rboxes import RBoxes
from .geometry.rings import cut_apart
from .shade import reach, shade
from .types import Instances

FEW = 8  # objects in a picture beside which tags may be larger than what they name
HIDDEN = 0.3  # of an object that a tag may cover
GAP = 4  # pixels between the pictures of a sheet
NARROW = 3  # pixels of a space of small letters, under which words run together
Color = tuple[int, int, int]
Window = tuple[int, int, int, int]
Painter = Callable[[ImageDraw.ImageDraw, Any, Sequence[Color], int], None]


def paint_boxes(pen: ImageDraw.ImageDraw, boxes: Boxes, colors: Sequence[Color], width: int) -> None:
    """Outlines that lie inside the boxes."""
    left, top, right, bottom = _seen(pen, width)
    for (x1, y1, x2, y2), color in zip(boxes.data.tolist(), colors, strict=True):
        corners = (max(x1, left), max(y1, top), min(max(x1, x2 - 1), right), min(max(y1, y2 - 1), bottom))
        if corners[0] <= corners[2] and corners[1] <= corners[3]:
            pen.rectangle(corners, outline=color, width=_thin(width, min(x2 - x1, y2 - y1)))


def _thin(width: int, side: float) -> int:
    """The width of a line around an object whose shorter side is `side` pixels: it leaves most of the object to be seen."""
    return max(1, min(width, round(side / 8)))


def paint_rboxes(pen: ImageDraw.ImageDraw, rboxes: RBoxes, colors: Sequence[Color], width: int) -> None:
    """Outlines with a mark from the centre along the long side, which shows the angle."""
    thick = width
    for corners, side, color in zip(rboxes.corners(), rboxes.data[:, 3].tolist(), colors, strict=True):
        points, width = [tuple(corner) for corner in corners.tolist()], _thin(thick, side)
        centre, end = corners.mean(0).tolist(), corners[1:3].mean(0).tolist()
        pen.line([*points, *points[:2]], fill=color, width=width, joint="curve")
        pen.line([*centre, *end], fill=color, width=max(1, width // 2))


def paint_masks(pen: ImageDraw.ImageDraw, masks: Masks, colors: Sequence[Color], width: int) -> None:
    """The pixels of each mask tinted, its outline drawn."""
    for (crop, left, top), bounds, color in zip(masks.crops(_seen(pen, width)), masks.bounds(), colors, strict=True):
        shade(pen, crop, left, top, color, _line(width, bounds))


def paint_codes(pen: ImageDraw.ImageDraw, codes: Rle, colors: Sequence[Color], width: int) -> None:
    """As `paint_masks`, from run-length codes."""
    for i, (bounds, color) in enumerate(zip(codes.bounds(), colors, strict=True)):
        left, top, right, bottom = _common(bounds, _seen(pen, width))
        shade(pen, codes.crop(i, left, top, right, bottom), left, top, color, _line(width, bounds))


def paint_polygons(pen: ImageDraw.ImageDraw, polygons: Polygons, colors: Sequence[Color], width: int) -> None:
    """As `paint_masks`; of what holds no pixel's centre its rings."""
    seen = _seen(pen, width)
    for i, (bounds, color) in enumerate(zip(polygons.bounds(), colors, strict=True)):
        own = polygons[i : i + 1]
        left, top, right, bottom = _common(bounds, seen)
        inside = own.warp(translation(-left, -top)).rasterise(bottom - top, right - left)[0].numpy()
        shade(pen, inside, left, top, color, _line(width, bounds))
        if not inside.any():
            _outline(pen, own.parts(0), color, width, seen)


def _line(width: int, bounds: Tensor) -> int:
    """How wide the line along the edge of a mask with these bounds (4,) is."""
    return max(1, _thin(width, float((bounds[2:] - bounds[:2]).min())) // 2)


def _seen(pen: ImageDraw.ImageDraw, width: int) -> Window:
    """What of the plane has a say in the picture: left, top, right, bottom."""
    margin = width + reach(width)
    return -margin, -margin, pen.im.size[0] + margin, pen.im.size[1] + margin


def _common(bounds: Tensor, seen: Window) -> Window:
    """The pixels within bounds (4,) xyxy that are seen; without width or height where there are none."""
    low, high = bounds.double().numpy().reshape(2, 2).clip(seen[:2], seen[2:])
    left, top = np.floor(low).astype(int).tolist()
    right, bottom = np.ceil(high).astype(int).tolist()
    return left, top, right, bottom


def paint_keypoints(pen: ImageDraw.ImageDraw, keypoints: Keypoints, colors: Sequence[Color], width: int) -> None:
    """A dot at every point that is there, and the bones between two such points."""
    reach = 1.2 * width
    for points, color in zip(keypoints.data.tolist(), colors, strict=True):
        shown = {i: (x, y) for i, (x, y, seen) in enumerate(points) if seen > SHOWN}
        for a, b in keypoints.skeleton:
            if a in shown and b in shown:
                pen.line([shown[a], shown[b]], fill=color, width=width)
        for x, y in shown.values():
            pen.ellipse((x - reach, y - reach, x + reach, y + reach), fill=color, outline=_ink(color))


def _outline(pen: ImageDraw.ImageDraw, rings: Sequence[np.ndarray], color: Color, width: int, seen: Window) -> None:
    for ring in rings:
        points, starts, _ = cut_apart(ring.astype(np.float64), np.array([0, len(ring)]), seen)
        for part in np.split(points, starts[1:-1]):
            corners = [tuple(point) for point in part.tolist()]
            pen.line([*corners, *corners[:1]], fill=color, width=max(1, width // 2), joint="curve")


PAINTERS: dict[type, Painter] = {
    Boxes: paint_boxes,
    RBoxes: paint_rboxes,
    Masks: paint_masks,
    Rle: paint_codes,
    Polygons: paint_polygons,
    Keypoints: paint_keypoints,
}


def class_color(label: int) -> Color:
    """A clear colour for a class; neighbours in number are far apart in hue."""
    hue = (0.58 + label * 0.61803) % 1
    red, green, blue = colorsys.hls_to_rgb(hue, 0.55 if label % 2 else 0.5, 0.95)
    return round(red * 255), round(green * 255), round(blue * 255)


def draw(
    image: np.ndarray, instances: Instances, names: Sequence[str], labels: bool = True, colors: Sequence[Color] | None = None
) -> np.ndarray:
    """A copy of `image` (h, w, 3) uint8 with the objects (in its pixels) outlined and, if `labels`, named with class and score.

    `colors` has one for each object; None: each class has its own.

    Lines and text grow with the picture, but lines are thin around small objects. Tags never cover each other or more than a part of any
    object, and among many objects none is larger than its own: the best objects are served first, and where there is no room for name and
    score there is the score alone, or nothing.
    """
    picture = Image.fromarray(np.ascontiguousarray(image))
    pen = ImageDraw.Draw(picture)
    unit = max(picture.size)
    worst_first = torch.arange(len(instances) - 1, -1, -1) if instances.scores is None else instances.scores.argsort(stable=True)
    given = [class_color(label) for label in instances.labels.tolist()] if colors is None else colors
    instances, colors = instances[worst_first], [given[place] for place in worst_first.tolist()]
    turned = any(isinstance(shape, RBoxes) for shape in instances.shapes.values())
    for shape in instances.shapes.values():
        if turned and isinstance(shape, Boxes):
            continue  # the box around a turned one says nothing more
        PAINTERS[type(shape)](pen, shape, colors, max(2, round(unit / 400)))
    if labels:
        bounds = next(iter(instances.shapes.values())).bounds().numpy()
        tags = _Tags(pen, picture.size, ImageFont.load_default(size=max(10.0, unit / 55)), bounds)
        for words, box, color in reversed(list(zip(captions(instances, names), bounds.tolist(), colors, strict=True))):
            tags.place(words, box, color, small=len(instances) > FEW)
    return np.asarray(picture)


def captions(instances: Instances, names: Sequence[str]) -> list[tuple[str, ...]]:
    """What may stand beside each object, longest first: name and score, then the score alone; the name alone for ground truth."""
    labels = [names[label] if label < len(names) else str(label) for label in instances.labels.tolist()]
    if instances.scores is None:
        return [(name,) for name in labels]
    return [(f"{name} {score:.2f}", f"{score:.2f}") for name, score in zip(labels, instances.scores.tolist(), strict=True)]


def contact_sheet(
    images: Iterable[np.ndarray],
    instances: Sequence[Instances],
    names: Sequence[str],
    columns: int = 4,
    tile: int = 480,
    labels: bool = True,
) -> Image.Image:
    """Pictures with their objects, named if `labels`, `columns` to a row, each fitted into `tile` x `tile` pixels.

    Of `images` each is asked for when its turn comes, and let go before the next: one picture is in memory, however many there are.
    """
    columns = max(1, min(columns, len(instances)))
    rows = max(1, -(-len(instances) // columns))
    step = tile + GAP
    sheet = Image.new("RGB", (columns * step - GAP, rows * step - GAP), (255, 255, 255))
    for number, (small, gain) in enumerate(map(_fitted, images, repeat(tile))):
        drawn = draw(small, resized(instances[number], gain), names, labels)
        sheet.paste(Image.fromarray(drawn), (number % columns * step, number // columns * step))
    return sheet


def resized(instances: Instances, gain: float) -> Instances:
    """The objects on their picture after it was made `gain` times as large; codes that grow get smooth edges in place of larger pixels."""
    if gain > 1:
        smooth = {
            name: Masks.of_cells(shape[i : i + 1].decode()[0].numpy() for i in range(len(shape))) if isinstance(shape, Rle) else shape
            for name, shape in instances.shapes.items()
        }
        instances = replace(instances, shapes=smooth)
    return instances.warp(scaling(gain, gain))


def _fitted(image: np.ndarray, tile: int) -> tuple[np.ndarray, float]:
    """The picture with its longer side `tile` pixels, and how much smaller it is."""
    gain = tile / max(image.shape[:2])
    width, height = (max(1, round(side * gain)) for side in image.shape[1::-1])
    return np.asarray(Image.fromarray(np.ascontiguousarray(image)).resize((width, height), Image.Resampling.BILINEAR)), gain


class _Tags:
    """Filled tags with text beside the objects `boxes` (n, 4), each where no earlier tag lies and every object can still be seen."""

    def __init__(
        self, pen: ImageDraw.ImageDraw, size: tuple[int, int], font: ImageFont.FreeTypeFont | ImageFont.ImageFont, boxes: np.ndarray
    ) -> None:
        self.pen = pen
        self.size = size
        self.font = font
        self.space = "  " if self.pen.textlength(" ", font) < NARROW else " "
        self.boxes = boxes
        self.most = HIDDEN * (boxes[:, 2:] - boxes[:, :2]).clip(1).prod(1)  # square pixels of each that a tag may cover
        self.taken = np.zeros((0, 4))

    def place(self, words: Sequence[str], box: Sequence[float], color: Color, small: bool) -> None:
        """Draw the first of `words` that has room above, inside or below the box; nothing if none has. `small`: no larger than the box."""
        for text in words:
            text = text.replace(" ", self.space)
            left, top, right, bottom = self.pen.textbbox((0, 0), text, font=self.font)
            pad = max(1, round((bottom - top) / 5))
            width, height = right - left + 2 * pad, bottom - top + 2 * pad
            if small and width * height > (box[2] - box[0]) * (box[3] - box[1]):
                continue
            x = max(0, min(box[0], self.size[0] - width))
            above, inside, below = box[1] - height, box[1], box[3]
            roomy = box[3] - box[1] > 4 * height
            for y in (above, inside, below) if roomy else (above, below, inside):
                place = (x, y, x + width, y + height)
                if self._free(place):
                    self.taken = np.vstack((self.taken, place))
                    self.pen.rectangle(place, fill=color)
                    self.pen.text((x + pad - left, y + pad - top), text, fill=_ink(color), font=self.font)
                    return

    def _free(self, place: tuple[float, float, float, float]) -> bool:
        if place[1] < 0 or place[3] > self.size[1]:
            return False
        apart = (self.taken[:, :2] >= place[2:]) | (self.taken[:, 2:] <= place[:2])
        over = np.minimum(self.boxes[:, 2:], place[2:]) - np.maximum(self.boxes[:, :2], place[:2])
        return bool(apart.any(1).all()) and not (over.clip(0).prod(1) > self.most).any()


def _ink(ground: Color) -> Color:
    """Black or white, whichever is read more easily on `ground`."""
    light = 0.299 * ground[0] + 0.587 * ground[1] + 0.114 * ground[2]
    return (0, 0, 0) if light > 140 else (255, 255, 255)
