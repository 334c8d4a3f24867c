"""What an exported file says of itself: all that a host must know to feed it and to read it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import prod

from ..data.images import FILL
from ..errors import CheckpointError
from ..rules import LARGEST, STRIDES
from ..tasks import Task
from ..zoo import Card, make_task

KEY = "pellucid"  # where the facts lie in the metadata of a file
FORM = 1  # raised when the meaning of outputs or facts changes
HEADS = {"o2o": "e2e", "o2m": "nms"}  # the branch of a file, and the decode path that reads it
INPUT, ROWS, SCORES = "images", "rows", "scores"
LETTERBOX = (
    "scale = S / max(h, w); new sides max(1, round(side * scale)), a half to the even side; bilinear, antialiased where it shrinks; "
    "left = (S - new_w) // 2, top = (S - new_h) // 2; the rest is grey"
)


@dataclass(frozen=True)
class Facts:
    """How a file was exported, and the card of its model, whose imgsz is that of the file."""

    card: Card
    head: str  # a key of HEADS
    half: bool
    batch: int | None  # pictures in a step; None: any number
    max_det: int
    opset: int
    columns: Mapping[str, tuple[int, ...]]  # shapes of the parts of a row, the place first: {"boxes": (4,), "keypoints": (7, 3)}
    shared: tuple[str, ...]  # outputs that an image's rows share: ("proto",)

    @property
    def path(self) -> str:
        """The decode path that reads the file."""
        return HEADS[self.head]

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the file's outputs in their order."""
        place, *others = self.columns
        own = (ROWS,) if self.head == "o2o" else (place, SCORES, *others)
        return (*own, *self.shared)

    def to_json(self) -> str:
        """The facts as JSON, with what follows from them spelled out for hosts that have no pellucid."""
        task = make_task(self.card)
        told = {
            "form": FORM,
            "task": self.card.task,
            "names": list(self.card.names),
            "class_ids": list(self.card.category_ids),
            "imgsz": self.card.imgsz,
            "stride": STRIDES[-1],
            "input": {"name": INPUT, "layout": "NCHW", "type": "uint8", "range": [0, 255], "color": "RGB"},
            "letterbox": {"rule": LETTERBOX, "fill": FILL},
            "layout": _layout(self.columns) if self.head == "o2o" else {name: list(shape) for name, shape in self.columns.items()},
            **task.facts,
        }
        kept = {name: value for name, value in asdict(self).items() if name != "card"}
        return json.dumps({**told, **kept, "outputs": list(self.outputs), "card": json.loads(self.card.to_json())})

    @classmethod
    def from_json(cls, text: str | None, path: str) -> Facts:
        """The facts in a file at `path`; CheckpointError where there are none, or others."""
        if text is None:
            raise CheckpointError(f"expected a file that `pellucid export` wrote at {path}, found no card inside; export the weights again")
        try:
            values = json.loads(text)
            if values["form"] != FORM:
                raise ValueError(f"form {values['form']!r}, this version reads {FORM}")
            columns = {str(name): tuple(int(side) for side in shape) for name, shape in values["columns"].items()}
            plain = {name: values[name] for name in ("head", "half", "batch", "max_det", "opset")}
            facts = cls(Card.from_json(json.dumps(values["card"])), columns=columns, shared=tuple(values["shared"]), **plain)
            facts._check(make_task(facts.card))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise CheckpointError(
                f"expected the card of an exported model in {path}, got another ({str(error)[:200]}); export the weights again"
            ) from error
        return facts

    def _check(self, task: Task) -> None:
        batched = self.batch is None or (type(self.batch) is int and self.batch >= 1)
        known = self.head in HEADS and type(self.half) is bool and type(self.max_det) is int and batched
        if not known or tuple(self.columns) != task.row or self.card.imgsz > LARGEST:
            raise ValueError(f"head {self.head!r}, rows of {', '.join(self.columns)}")


def _layout(columns: Mapping[str, tuple[int, ...]]) -> dict[str, list[int]]:
    """{part of a row: [first column, one past the last]}: the place, score, class, then the others."""
    place, *others = columns
    lengths = {place: prod(columns[place]), "score": 1, "class": 1, **{name: prod(columns[name]) for name in others}}
    layout, at = {}, 0
    for name, length in lengths.items():
        layout[name] = [at, at + length]
        at += length
    return layout
