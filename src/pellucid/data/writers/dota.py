"""DOTA text: {split}/images, {split}/labelTxt and classes.txt; rows of four corners, a class and whether it is difficult."""

from __future__ import annotations

from dataclasses import dataclass

from .base import Item, Plan, Thing, Writer, stem_of
from .originals import DotaFiles
from .yolo import corners_of


@dataclass
class Dota(Writer):
    """Difficult objects stay difficult, in a copy to the degree that was stated."""

    HOLDS = frozenset({"rboxes", "ignored"})

    def __post_init__(self) -> None:
        self.files = DotaFiles() if self.dataset.format == "dota" else None

    def picture(self, split: str, name: str) -> str:
        return f"{split}/images/{name}"

    def page(self, split: str, item: Item, things: list[Thing]) -> None:
        lines, flags = self.files.page(item.index, item.row) if self.files else ([], {})
        lines = [f"{line}\n" for line in lines]
        for thing in things:
            flag = flags.get(thing.origin, "")
            flag = flag if (flag not in ("", "0")) == thing.ignore and flag else str(int(thing.ignore))
            numbers = " ".join(f"{value:.3f}" for value in corners_of(self, item.name, thing).reshape(-1))
            lines.append(f"{numbers} {self.dataset.names[thing.label]} {flag}\n")
        self.text(f"{split}/labelTxt/{stem_of(item.name)}.txt", "".join(lines))

    def finish(self, plan: Plan) -> None:
        self.text("classes.txt", "".join(name + "\n" for name in self.dataset.names))
