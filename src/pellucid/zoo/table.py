"""What is known of the trained weights that ship: from the card in each file and from the YAML in the text beside it."""

from __future__ import annotations

from typing import Any

import yaml

from .weights import HERE, load_weights, shipped_names


def shipped_table() -> list[dict[str, Any]]:
    """A row for each shipped model, JSON-ready: name, task, scale, imgsz, classes, megabytes, trained_on, licence, scored_on, scores."""
    return [_row(name) for name in shipped_names()]


def _row(name: str) -> dict[str, Any]:
    path = HERE / f"{name}.safetensors"
    card = load_weights(path)[1]
    _, told, _ = (HERE / f"{name}.md").read_text(encoding="utf-8").split("```", 2)
    size = round(path.stat().st_size / 1e6, 1)
    known = {"name": name, "task": card.task, "scale": card.scale, "imgsz": card.imgsz, "classes": list(card.names), "megabytes": size}
    return {**known, **yaml.safe_load(told.removeprefix("yaml"))}
