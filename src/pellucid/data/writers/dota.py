"""DOTA text: {split}/images, {split}/labelTxt and classes.txt; rows of four corners, a class and whether it is difficult."""

from __future__ import annotations

from .base import Item, Plan, Thing, Writer, stem_of
from .yolo import corners_of


class Dota(Writer):
    """Difficult objects stay difficult."""

    HOLDS = frozenset({"rboxes", "ignored"})

    def picture(self, split: str, name: str) -> str:
        return f"{split}/images/{name}"

    def page(self, split: str, item: Item, things: list[Thing]) -> None:
        lines = []
        for thing in things:
            numbers = " ".join(f"{value:.3f}" for value in corners_of(self, item.name, thing).reshape(-1))
            lines.append(f"{numbers} {self.dataset.names[thing.label]} {int(thing.ignore)}\n")
        self.text(f"{split}/labelTxt/{stem_of(item.name)}.txt", "".join(lines))

    def finish(self, plan: Plan) -> None:
        self.text("classes.txt", "".join(name + "\n" for name in self.dataset.names))
