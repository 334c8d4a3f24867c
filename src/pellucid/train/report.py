"""Files of an evaluation and of a training run: tables, predictions, pictures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..data.images import read_image
from ..data.index import Index, distinct_names
from ..draw import contact_sheet
from ..evaluate.run import Scores
from ..geometry import Boxes, Shape
from ..geometry.keypoints import Keypoints
from ..geometry.masks import Masks, unpack_bits
from ..geometry.rboxes import RBoxes
from ..results.preview import telling_shapes
from ..types import Batch, Instances
from .charts import heat_map, label_plot, line_chart, training_curves
from .folder import whole_file, write_json, write_rows

SHOWN = 16  # pictures on a preview sheet
SHOWN_SCORE = 0.25
MASK_STRIDE = 4  # pixels of the canvas to a cell of the masks taught


WRITTEN = (  # by a scoring
    *("scores.json", "per_class.csv", "predictions.json", "details.json", "report.html"),
    *("confusion.png", "pr_curve.png", "f1_curve.png", "predictions.jpg"),
)


def clear_scores(folder: Path) -> None:
    """Remove what an earlier scoring left in `folder`, so that nothing there tells of another run."""
    examples = [path for kind in ("best", "worst") for path in (folder / "examples").glob(f"{kind}-*.jpg")]
    for path in (*(folder / name for name in WRITTEN), *examples):
        path.unlink(missing_ok=True)


def write_scores(folder: Path, scores: Scores, index: Index, plots: bool = True, predictions: bool = True) -> None:
    """scores.json, per_class.csv, predictions.json and, if `plots`, the pictures of the first path that was scored."""
    first = next(iter(scores.paths.values()))
    write_json(folder / "scores.json", scores.to_dict())
    write_rows(folder / "per_class.csv", first.per_class)
    if predictions:
        with whole_file(folder / "predictions.json") as part:
            first.coco.write(part)
    if plots:
        _plot_scores(folder, first, index)


def plot_labels(folder: Path, index: Index) -> None:
    """labels.png: objects of the training split by class, place and size."""
    height, width = index.sizes[index.image_rows()].T.astype(float)
    x1, y1, x2, y2 = index.boxes.T.astype(float)
    centres = np.stack([(x1 + x2) / 2 / width, (y1 + y2) / 2 / height], 1)
    sides = np.stack([(x2 - x1) / width, (y2 - y1) / height], 1)
    label_plot(distinct_names(index.names, index.category_ids), index.class_counts().tolist(), centres, sides).save(folder / "labels.png")


def plot_batch(path: Path, batch: Batch, names: Sequence[str]) -> None:
    """A sheet of training images as the network sees them, with their targets."""
    images = batch.images[:SHOWN].permute(0, 2, 3, 1).cpu().numpy()
    shown = [telling_shapes(objects) for objects in targets_of(batch)[:SHOWN]]
    contact_sheet(list(images), shown, names, labels=len(names) > 1).save(path, quality=90)


TAUGHT: Mapping[str, Callable[[torch.Tensor], Shape]] = {  # from the rows of `Targets.truth` to what can be drawn
    "boxes": Boxes,
    "rboxes": RBoxes,
    "keypoints": lambda rows: Keypoints(rows, None),
    "masks": lambda rows: Masks.of_cells(unpack_bits(rows).numpy(), MASK_STRIDE),
}


def targets_of(batch: Batch) -> list[Instances]:
    """The targets of each image, canvas pixels."""
    whole = batch.targets.to("cpu")
    return [
        Instances(labels[valid], {name: TAUGHT[name](rows[row][valid]) for name, rows in whole.truth.items()})
        for row, (labels, valid) in enumerate(zip(whole.labels, whole.valid, strict=True))
    ]


def plot_curves(folder: Path, rows: Sequence[Mapping[str, float]]) -> None:
    """curves.png from the rows of results.csv."""
    if rows:
        training_curves(rows).save(folder / "curves.png")


def _plot_scores(folder: Path, scores: Any, index: Index) -> None:
    names = [*distinct_names(index.names, index.category_ids), "background"]
    matrix = scores.confusion
    title = f"confusion matrix at score {matrix.conf:g}, IoU {matrix.iou:g}"
    heat_map(matrix.counts.T, names, names, title, "predicted", "truth").save(folder / "confusion.png")
    curves = scores.curves
    by_class = [label for label, row in enumerate(curves.recall) if np.isfinite(row).any()]
    titles = distinct_names(index.names, index.category_ids)
    recall_precision = {titles[i]: (curves.recall[i], curves.precision[i]) for i in by_class}
    line_chart(recall_precision, "precision over recall at IoU 0.5", "recall", (0, 1)).save(folder / "pr_curve.png")
    f1 = {titles[i]: (curves.thresholds, curves.f1[i]) for i in by_class}
    threshold, best = curves.best()
    line_chart(f1, f"F1, best {best:.2f} at score {threshold:.2f}", "score threshold", (0, 1)).save(folder / "f1_curve.png")
    _plot_predictions(folder / "predictions.jpg", scores.coco.state(), index)


def _plot_predictions(path: Path, found: Mapping[int, Instances], index: Index) -> None:
    rows = sorted(found)[:SHOWN]
    kept = [telling_shapes(found[row][confident(found[row])].to("cpu")) for row in rows]
    if rows:
        contact_sheet((read_image(index.path(row)) for row in rows), kept, index.names).save(path, quality=90)


def confident(instances: Instances) -> torch.Tensor:
    """(n,) bool: the objects that a preview shows."""
    assert instances.scores is not None
    return instances.scores >= SHOWN_SCORE
