"""Sheets to look at: `python bench/sheets.py OUT model=NAME data=SET [pictures=8] [columns=4] [tile=320] [conf=0.25] [key=value ...]`.

train.jpg shows training pictures as the network gets them, augmented, with their targets; val.jpg pictures of the validation split with
what the model finds there, end to end. A model without trained weights ("segment-n") gives train.jpg alone. The words that remain, such as
imgsz=320 or mosaic=0, are settings of `pellucid train`. OUT is a folder, or one picture (.jpg) for both, training above.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image

from pellucid.augment.apply import apply
from pellucid.cli import read_settings
from pellucid.config import TrainConfig, merged
from pellucid.data.images import read_image
from pellucid.data.index import DataSet
from pellucid.data.module import DataModule
from pellucid.draw import contact_sheet
from pellucid.predict import predict
from pellucid.results.preview import telling_shapes
from pellucid.train.run import augment_of, open_all
from pellucid.types import Instances
from pellucid.zoo import Card, make_task, open_model, shipped_names

OWN = {"pictures": "8", "columns": "4", "tile": "320", "conf": "0.25"}


def training(dataset: DataSet, card: Card, config: TrainConfig, count: int) -> Iterator[tuple[np.ndarray, Instances]]:
    """(picture, targets) of the first training samples."""
    data = DataModule(dataset, make_task(card), imgsz=config.imgsz, batch=count, seed=config.seed, augment=augment_of(config), ring=False)
    loader = data.train_dataloader()
    keys = loader.keys.keys(0)
    samples = [loader.dataset[keys[i % len(keys)][0] + i // len(keys), keys[i % len(keys)][1]] for i in range(count)]
    images = apply(loader.collate_fn(samples)).images.permute(0, 2, 3, 1).numpy()
    for image, sample in zip(images, samples, strict=True):
        yield image, telling_shapes(sample.instances)


def found(dataset: DataSet, opened: tuple, config: TrainConfig, count: int, conf: float) -> Iterator[tuple[np.ndarray, Instances]]:
    """(picture, predictions) of validation pictures, taken from all over the split."""
    model, card = opened
    index = dataset.splits["val"]
    rows = np.unique(np.linspace(0, len(index) - 1, min(count, len(index))).astype(int))
    paths = [index.path(row) for row in rows]
    for path, result in zip(paths, predict(model, card, paths, conf=conf, imgsz=config.imgsz), strict=True):
        yield read_image(path), telling_shapes(result.instances)


def save(sheet: Image.Image, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    sheet.save(path, quality=85)
    print(f"{path}: {sheet.width} x {sheet.height}, {path.stat().st_size / 1000:.0f} kB")


def stacked(sheets: list[Image.Image], gap: int = 12) -> Image.Image:
    """Sheets one below the other."""
    whole = Image.new("RGB", (max(sheet.width for sheet in sheets), sum(sheet.height + gap for sheet in sheets) - gap), "white")
    top = 0
    for sheet in sheets:
        whole.paste(sheet, (0, top))
        top += sheet.height + gap
    return whole


def main(out: Path, options: dict[str, str]) -> None:
    own = OWN | {key: options.pop(key) for key in OWN if key in options}
    count, columns, tile = (int(own[key]) for key in ("pictures", "columns", "tile"))
    config = merged(TrainConfig(imgsz=320), read_settings("train", [f"{key}={value}" for key, value in options.items()]))
    dataset, _, card = open_all(config)
    parts = {"train": training(dataset, card, config, count)}
    if config.model in shipped_names() or Path(config.model).suffix:
        parts["val"] = found(dataset, open_model(config.model), config, count, float(own["conf"]))
    sheets = {}
    for name, pairs in parts.items():
        images, objects = zip(*pairs, strict=True)
        sheets[name] = contact_sheet(images, objects, dataset.names, columns, tile, len(dataset.names) > 1)
    if out.suffix:
        save(stacked(list(sheets.values())), out)
        return
    for name, sheet in sheets.items():
        save(sheet, out / f"{name}.jpg")


if __name__ == "__main__":
    plain = [word for word in sys.argv[1:] if "=" not in word]
    main(Path(plain[0]), dict(word.split("=", 1) for word in sys.argv[1:] if "=" in word))
