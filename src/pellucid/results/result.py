"""The user's view of a prediction: objects to look at, to choose from, to draw and to write."""

from __future__ import annotations

import json
import operator
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from ..data.images import SUFFIXES, read_image
from ..draw import draw
from ..errors import UsageError
from ..geometry import Boxes
from ..geometry.keypoints import Keypoints
from ..geometry.masks import Masks
from ..geometry.polygons import Polygons
from ..geometry.rboxes import RBoxes
from ..geometry.rle import Rle
from ..types import Frame, ImageMeta, Instances
from .encode import boxes_of, encoding, exact, telling
from .reload import image_of, objects_of
from .tables import data_frame, detections
from .views import BoxesView, KeypointsView, MasksView, RBoxesView

LOSSY = (".jpg", ".jpeg", ".jpe", ".jfif", ".webp")
Index = int | slice | Tensor | np.ndarray | Sequence[int] | Sequence[bool]


@dataclass(frozen=True, eq=False, repr=False)
class Result:
    """Objects on one picture; `len(r)`, `r[i]`, `r[r.boxes.conf > 0.5]` and iteration go over the objects."""

    meta: ImageMeta
    instances: Instances  # original pixels, best first, on the CPU
    names: tuple[str, ...]
    category_ids: tuple[int, ...]  # the user's id of each class, used in every file
    name: Path = Path("image0.jpg")  # unique among the results of one call; files are named after it
    image: np.ndarray | None = field(default=None, repr=False)  # (h, w, 3) uint8 RGB; None: read from the path when needed
    speed: dict[str, float] = field(default_factory=dict)  # ms: pre, network, post
    frame: Frame | None = None  # of a video
    numbers: Tensor | None = field(default=None, repr=False)  # (n,) of each object in the whole result; None: 0, 1, ...

    def __repr__(self) -> str:
        height, width = self.orig_shape
        counts = self.instances.labels.bincount(minlength=len(self.names)).tolist()
        found = ", ".join(f"{count} {name}" for name, count in zip(self.names, counts, strict=False) if count) or "nothing"
        return f"Result({str(self.name)!r}, {width}x{height}: {found})"

    def __len__(self) -> int:
        return len(self.instances)

    def __getitem__(self, index: Index) -> Result:
        """The chosen objects, as a result of the same picture."""
        if not isinstance(index, slice) and np.ndim(index) == 0:
            index = operator.index(index)  # type: ignore[arg-type]
            if not -len(self) <= index < len(self):
                raise IndexError(f"expected an object number below {len(self)}, got {index}")
            index = slice(index % len(self), index % len(self) + 1)
        chosen = torch.tensor(range(len(self))[index], dtype=torch.int64) if isinstance(index, slice) else torch.as_tensor(index)
        if chosen.numel() == 0 and chosen.dtype != torch.bool:
            chosen = chosen.long()  # an empty list has no type of its own
        return replace(self, instances=self.instances[chosen], numbers=self._numbers[chosen])

    def __iter__(self) -> Iterator[Result]:
        return (self[i] for i in range(len(self)))

    @property
    def path(self) -> str:
        return self.meta.path

    @property
    def orig_shape(self) -> tuple[int, int]:
        """(height, width) of the picture, upright."""
        return self.meta.height, self.meta.width

    @property
    def boxes(self) -> BoxesView:
        return BoxesView(boxes_of(self.instances).data, self._scores, self.instances.labels, self.orig_shape)

    @property
    def masks(self) -> MasksView | None:
        shape = self._shape((Masks, Polygons, Rle))
        return None if shape is None else MasksView(shape, self.orig_shape)

    @property
    def keypoints(self) -> KeypointsView | None:
        shape = self._shape((Keypoints,))
        return None if shape is None else KeypointsView(shape.data, self.orig_shape)

    @property
    def rboxes(self) -> RBoxesView | None:
        shape = self._shape((RBoxes,))
        return None if shape is None else RBoxesView(shape.data, self._scores, self.instances.labels, self.orig_shape)

    @property
    def _scores(self) -> Tensor:
        return torch.ones(len(self)) if self.instances.scores is None else self.instances.scores

    def _shape(self, kinds: tuple[type, ...]) -> Any:
        return next((shape for shape in self.instances.shapes.values() if isinstance(shape, kinds)), None)

    def plot(self, labels: bool = True) -> np.ndarray:
        """A copy of the picture (h, w, 3) uint8 RGB with the objects drawn."""
        image = read_image(self.path) if self.image is None else self.image
        return draw(image, self.instances, self.names, labels)

    def save(self, folder: str | Path) -> Path:
        """Write the drawn picture into `folder` under the result's own name; the path written.

        UsageError where the picture that was read lies there.
        """
        path = Path(folder) / self.name
        if path.suffix.lower() not in SUFFIXES:
            path = path.with_name(path.name + ".jpg")
        return self._save(self.plot(), path)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready; `class` is the user's id, boxes are x1, y1, x2, y2 in original pixels; further fields as the shapes have them.

        Those are `polygons`, `keypoints`, or `rbox` and `corners`. A frame of a video has its number, `frame`, and `time` in seconds.
        """
        objects = [dict(head, **fields) for head, fields in zip(self._heads(), self._fields("json"), strict=True)]
        place = {} if self.frame is None else {"frame": self.frame.index, "time": self.frame.time}
        size = {"height": self.meta.height, "width": self.meta.width}
        return {"path": self.path, **place, **size, "objects": objects, "speed": self.speed}

    def to_json(self) -> str:
        """`to_dict` on one line."""
        return json.dumps(self.to_dict(), ensure_ascii=False)

    def to_coco(self, image_id: int | None = None) -> list[dict[str, Any]]:
        """COCO results, which `from_coco` reads without loss; the image id is the one of the data, else the position among the sources."""
        image = self.meta.id if image_id is None else image_id
        return [
            {"image_id": image, "category_id": self.category_ids[label], **fields, "score": score}
            for label, fields, score in zip(self.instances.labels.tolist(), self._fields("coco"), exact(self._scores), strict=True)
        ]

    @classmethod
    def from_coco(
        cls, records: Sequence[Mapping[str, Any]], names: Mapping[int, str], size: tuple[int, int], path: str = "image0"
    ) -> Result:
        """What `to_coco` of one picture of (height, width) `size` gave, without loss; `names` are those of the class ids.

        DataError names the record that cannot be read.
        """
        ids = tuple(names)
        image = image_of(records)
        meta = ImageMeta(image, image, path, *size)
        return cls(meta, objects_of(records, ids), tuple(names.values()), ids, Path(Path(path).name))

    def save_txt(self, path: str | Path, save_conf: bool = False, exist_ok: bool = False) -> Path:
        """Write YOLO rows: class id, the values below as shares of the picture, and the score if `save_conf`.

        Boxes: centre x and y, width, height. Masks: one ring x y x y ... Keypoints: the box, then x y visibility of each, or x y where
        the model has no visibility, as `kpt_shape` of its data says. Rotated boxes: four corners. A folder as `path` gets a file named
        after the result; a picture without objects gives an empty file, an object with an empty mask no row.
        A file that exists may be somebody's labels: UsageError, or it is replaced if `exist_ok`.
        """
        path = Path(path)
        if path.suffix != ".txt":
            path = path / self.name.with_suffix(".txt")
        if not exist_ok and path.is_file():
            raise UsageError(f"{path}: expected no file there yet, got one that may hold labels; choose another folder, or exist_ok=True")
        shape = telling(self.instances)
        values = encoding(shape).row(shape, boxes_of(self.instances), self.orig_shape)
        heads = zip(self.instances.labels.tolist(), values, self._scores.tolist(), strict=True)
        rows = [[str(self.category_ids[c]), *map(_number, row), *([_number(score)] if save_conf else [])] for c, row, score in heads if row]
        with _writing(path):
            path.write_text("".join(" ".join(row) + "\n" for row in rows), encoding="utf-8")
        return path

    def save_crop(self, folder: str | Path) -> list[Path]:
        """Cut the objects' boxes out of the picture into `folder`/<class>/, named after the result and their number; the paths written.

        A box that covers no pixel gives no file, and its number is left out.
        """
        pixels = read_image(self.path) if self.image is None else self.image
        low, high = self.boxes.xyxy.floor().chunk(2, 1)[0].long().clamp(min=0), self.boxes.xyxy.ceil()[:, 2:].long()
        suffix = self.name.suffix if self.name.suffix.lower() in SUFFIXES else ".jpg"
        paths = []
        rows = zip(self._numbers.tolist(), self.instances.labels.tolist(), low.tolist(), high.tolist(), strict=True)
        for number, label, (x1, y1), (x2, y2) in rows:
            crop = pixels[y1:y2, x1:x2]
            if crop.size:
                place = Path(folder) / _safe(self.names[label]) / self.name.parent / f"{self.name.stem}-{number}{suffix}"
                paths.append(self._save(crop, place))
        return paths

    def to_df(self) -> Any:
        """A pandas DataFrame with a row for each object: name, class (the user's id), score, x1, y1, x2, y2, and what the shapes add.

        Those are rcx, rcy, rw, rh, rtheta; or x, y and confidence of each point. UsageError without pandas.
        """
        return data_frame(self)

    def to_supervision(self) -> Any:
        """`supervision.Detections`: class_id is the user's id, data["class_name"] the name.

        Masks are full size; corners of rotated boxes are in data["xyxyxyxy"] (n, 4, 2), points in data["keypoints"] (n, K, 3). UsageError
        without supervision.
        """
        return detections(self)

    def _save(self, image: np.ndarray, path: Path) -> Path:
        """Write a picture; UsageError where that would replace the one that was read."""
        if same_file(path, self.path):
            raise UsageError(f"{path}: expected a place that is not the picture that was read, got the same file; choose another folder")
        options: dict[str, Any] = {"quality": 92} if path.suffix.lower() in LOSSY else {}
        with _writing(path):
            Image.fromarray(image).save(path, **options)
        return path

    @property
    def _numbers(self) -> Tensor:
        return torch.arange(len(self)) if self.numbers is None else self.numbers

    def _heads(self) -> list[dict[str, Any]]:
        """Name, class id and score of each object."""
        rows = zip(self.instances.labels.tolist(), self._scores.tolist(), strict=True)
        return [{"name": self.names[c], "class": self.category_ids[c], "score": round(score, 6)} for c, score in rows]

    def _fields(self, form: str) -> list[dict[str, Any]]:
        """What each object's shapes say, in the form "json" or "coco"."""
        shapes = [boxes_of(self.instances), *(shape for shape in self.instances.shapes.values() if not isinstance(shape, Boxes))]
        parts = [getattr(encoding(shape), form)(shape, self.orig_shape) for shape in shapes]
        return [{name: value for fields in row for name, value in fields.items()} for row in zip(*parts, strict=True)]


def same_file(first: str | Path, second: str | Path) -> bool:
    """Whether both names lead to one file that exists."""
    try:
        return os.path.samefile(first, second)
    except (OSError, ValueError):  # one is missing, or no path at all
        return False


def _safe(name: str) -> str:
    """A class name as the name of a folder."""
    return re.sub(r"[/\\\x00-\x1f]", "_", name).strip(". ") or "_"


def _number(value: float) -> str:
    """Six decimals, or a whole number."""
    return f"{value:.6f}" if value % 1 else f"{value:.0f}"


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Makes the folder; what the system refuses becomes one sentence."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise UsageError(f"{path}: expected a place that can be written, got {error.strerror or error}; choose another folder") from None
