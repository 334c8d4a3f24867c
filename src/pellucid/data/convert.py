"""data convert: a data set written anew in another format; what that cannot hold is counted and named."""

from __future__ import annotations

import warnings
from pathlib import Path

from ..errors import PellucidWarning
from .findings import settle
from .index import DataSet
from .readers import read_dataset, read_whole
from .writers import Written, check_apart, check_out, plan_of, write_dataset


def open_for(data: str | Path, needs: tuple[str, ...] | None) -> DataSet:
    """All splits with the labels that `needs` names, or with all that there are; findings neither warned about nor raised."""
    return read_whole(data, copy=True) if needs is None else read_dataset(data, needs, copy=True)


def convert(
    data: str | Path, out: str | Path, to: str, needs: tuple[str, ...] | None = None, link: bool = False, strict: bool = False
) -> Written:
    """Write the data set at `data` to the new folder `out` in the format `to`: coco, yolo, dota, voc or labelme.

    What was wrong with the labels and what the format cannot hold is warned about (PellucidWarning), or raised if `strict` (DataError).
    UsageError where `out` holds files, or lies where the data set is read from.
    """
    target = check_out(out)
    dataset = open_for(data, needs)
    check_apart(target, dataset)
    settle(dataset.all_findings(), strict)
    rows = ((split, index, row) for split, index in dataset.splits.items() for row in range(len(index)))
    written = write_dataset(to, dataset, plan_of(to, dataset, rows), target, link, strict)
    for sentence in written.sentences:
        warnings.warn(sentence, PellucidWarning, stacklevel=2)
    return written
