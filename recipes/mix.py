"""Join several data sets into one YOLO data set, class after class: `python recipes/mix.py OUT SET [SET ...]`.

A SET is anything that `pellucid data check data=` reads. Validation pictures go to `val`; those of the set named `trees` are left out,
so that weights trained on the result have never seen them.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import yaml

from pellucid.data import open_dataset
from pellucid.data.index import Index


def write(index: Index, split: str, prefix: str, first_class: int, out: Path) -> None:
    """Copy pictures and write their boxes as YOLO rows."""
    for folder in ("images", "labels"):
        (out / folder / split).mkdir(parents=True, exist_ok=True)
    for row in range(len(index)):
        source, objects = index.path(row), index.instances(row)
        height, width = index.sizes[row].tolist()
        name = f"{prefix}-{row:05d}"
        shutil.copyfile(source, out / "images" / split / f"{name}{source.suffix}")
        lines = []
        for label, (x1, y1, x2, y2) in zip(objects.labels.tolist(), objects.shapes["boxes"].data.tolist(), strict=True):
            centre_size = ((x1 + x2) / 2 / width, (y1 + y2) / 2 / height, (x2 - x1) / width, (y2 - y1) / height)
            lines.append(f"{first_class + label} " + " ".join(f"{value:.6f}" for value in centre_size))
        (out / "labels" / split / f"{name}.txt").write_text("\n".join(lines))


def main(out: Path, sources: list[str]) -> None:
    names: list[str] = []
    for source in sources:
        dataset = open_dataset(source)
        prefix = Path(source).stem if Path(source).stem != "data" else Path(source).parent.name
        for split, index in dataset.splits.items():
            if not (source == "trees" and split == "val"):
                write(index, split, prefix, len(names), out)
        names += [f"{prefix} {name}" for name in dataset.names]
    content = {"path": ".", "train": "images/train", "val": "images/val", "names": dict(enumerate(names))}
    (out / "data.yaml").write_text(yaml.safe_dump(content, sort_keys=False))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
