"""What was found on one picture, as a user holds it: boxes, scores, names, pictures and files."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from .data.images import SUFFIXES, read_image
from .draw import draw
from .errors import UsageError
from .types import ImageMeta, Instances

LOSSY = (".jpg", ".jpeg", ".jpe", ".jfif", ".webp")
Index = int | slice | Tensor | np.ndarray | Sequence[int] | Sequence[bool]


@dataclass(frozen=True)
class BoxesView:
    """The boxes of a `Result`: all of length n, in original pixels, best first."""

    xyxy: Tensor  # (n, 4) float32
    conf: Tensor  # (n,) in [0, 1]
    cls: Tensor  # (n,) int64, positions in the result's `names`
    orig_shape: tuple[int, int]  # height, width

    def __len__(self) -> int:
        return len(self.xyxy)

    @property
    def xywh(self) -> Tensor:
        """(n, 4) centre x, centre y, width, height."""
        return torch.cat(((self.xyxy[:, :2] + self.xyxy[:, 2:]) / 2, self.xyxy[:, 2:] - self.xyxy[:, :2]), 1)

    @property
    def xyxyn(self) -> Tensor:
        """`xyxy` as shares of the picture's width and height."""
        return self.xyxy / self._sides

    @property
    def xywhn(self) -> Tensor:
        """`xywh` as shares of the picture's width and height."""
        return self.xywh / self._sides

    @property
    def _sides(self) -> Tensor:
        height, width = self.orig_shape
        return self.xyxy.new_tensor((width, height, width, height))


@dataclass(frozen=True, eq=False)
class Result:
    """Objects on one picture; `len(r)`, `r[i]`, `r[r.boxes.conf > 0.5]` and iteration go over the objects."""

    meta: ImageMeta
    instances: Instances  # original pixels, best first, on the CPU
    names: tuple[str, ...]
    category_ids: tuple[int, ...]  # the user's id of each class, used in every file
    name: Path = Path("image0.jpg")  # unique among the results of one call; files are named after it
    image: np.ndarray | None = field(default=None, repr=False)  # (h, w, 3) uint8 RGB; None: read from the path when needed
    speed: dict[str, float] = field(default_factory=dict)  # ms: pre, network, post

    def __len__(self) -> int:
        return len(self.instances)

    def __getitem__(self, index: Index) -> Result:
        """The chosen objects, as a result of the same picture."""
        if isinstance(index, int):
            if not -len(self) <= index < len(self):
                raise IndexError(f"expected an object number below {len(self)}, got {index}")
            index = slice(index % len(self), index % len(self) + 1)
        chosen = index if isinstance(index, slice) else torch.as_tensor(index)
        if isinstance(chosen, Tensor) and chosen.numel() == 0 and chosen.dtype != torch.bool:
            chosen = chosen.long()  # an empty list has no type of its own
        return replace(self, instances=self.instances[chosen])

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
        scores = self.instances.scores
        scores = torch.ones(len(self)) if scores is None else scores
        return BoxesView(self.instances.shapes["boxes"].bounds(), scores, self.instances.labels, self.orig_shape)

    def plot(self, labels: bool = True) -> np.ndarray:
        """A copy of the picture (h, w, 3) uint8 RGB with the objects drawn."""
        image = read_image(self.path) if self.image is None else self.image
        return draw(image, self.instances, self.names, labels)

    def save(self, folder: str | Path) -> Path:
        """Write the drawn picture into `folder` under the result's own name; the path written."""
        path = Path(folder) / self.name
        if path.suffix.lower() not in SUFFIXES:
            path = path.with_name(path.name + ".jpg")
        options: dict[str, Any] = {"quality": 92} if path.suffix.lower() in LOSSY else {}
        with _writing(path):
            Image.fromarray(self.plot()).save(path, **options)
        return path

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready; `class` is the user's id, boxes are x1, y1, x2, y2 in original pixels."""
        boxes = self.boxes
        rows = zip(boxes.cls.tolist(), boxes.conf.tolist(), boxes.xyxy.tolist(), strict=True)
        objects = [
            {"name": self.names[c], "class": self.category_ids[c], "score": round(score, 6), "box": [round(v, 3) for v in box]}
            for c, score, box in rows
        ]
        return {"path": self.path, "height": self.meta.height, "width": self.meta.width, "objects": objects, "speed": self.speed}

    def to_json(self) -> str:
        """`to_dict` on one line."""
        return json.dumps(self.to_dict(), ensure_ascii=False)

    def to_coco(self, image_id: int | None = None) -> list[dict[str, Any]]:
        """COCO results; the image id is the one of the data, else the position among the sources."""
        image = self.meta.id if image_id is None else image_id
        return [
            {"image_id": image, "category_id": row["class"], "bbox": _corner_size(row["box"]), "score": row["score"]}
            for row in self.to_dict()["objects"]
        ]

    def save_txt(self, path: str | Path, save_conf: bool = False) -> Path:
        """Write YOLO rows: class id, centre x and y, width, height as shares of the picture, and the score if `save_conf`.

        A folder as `path` gets a file named after the result. A picture without objects gives an empty file.
        """
        path = Path(path)
        if path.suffix != ".txt":
            path = path / self.name.with_suffix(".txt")
        boxes = self.boxes
        numbers = torch.cat((boxes.xywhn, boxes.conf[:, None]), 1)[:, : 5 if save_conf else 4].tolist()
        rows = [
            " ".join((str(self.category_ids[c]), *(f"{v:.6f}" for v in row))) for c, row in zip(boxes.cls.tolist(), numbers, strict=True)
        ]
        with _writing(path):
            path.write_text("".join(row + "\n" for row in rows), encoding="utf-8")
        return path


def _corner_size(box: Sequence[float]) -> list[float]:
    x1, y1, x2, y2 = box
    return [x1, y1, round(x2 - x1, 3), round(y2 - y1, 3)]


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Makes the folder; what the system refuses becomes one sentence."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise UsageError(f"{path}: expected a place that can be written, got {error.strerror or error}; choose another folder") from None
