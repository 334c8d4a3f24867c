"""data split: the pictures of a data set dealt anew to train, val and test, class by class, copies of one picture together."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..errors import DataError, PellucidWarning
from .convert import open_for
from .findings import settle
from .hashes import duplicates
from .index import Index, distinct_names
from .writers import Written, check_apart, check_out, plan_of, write_dataset


@dataclass(frozen=True)
class Dealt:
    """The new data set, objects of each class in each split, and how many pictures stayed together as copies."""

    written: Written
    classes: dict[str, dict[str, int]]  # name -> split -> objects
    groups: int  # of pictures that show the same
    grouped: int  # pictures in them


def split(
    data: str | Path,
    out: str | Path,
    shares: Mapping[str, float],
    seed: int = 0,
    needs: tuple[str, ...] | None = None,
    link: bool = False,
    strict: bool = False,
) -> Dealt:
    """Write the pictures of all splits at `data` to the new folder `out`, in the same format, dealt by `shares` ({split: share}, sum 1).

    The same data, shares and seed give the same splits. UsageError where `out` holds files; DataError where a split would be
    empty, or where a picture stands in several splits with different objects.
    """
    target = check_out(out)
    dataset = open_for(data, needs)
    check_apart(target, dataset)
    settle(dataset.all_findings(), strict)
    rows = _once(dataset.splits)
    paths = [index.path(row) for index, row in rows]
    copies = duplicates(paths)
    groups = _all_groups(copies, len(rows))
    counts = np.array([np.bincount(_labels(index, row), minlength=len(dataset.names)) for index, row in rows])
    dealt = deal(groups, counts, shares, seed)
    missing = [name for k, name in enumerate(shares) if not (dealt == k).any()]
    if missing:
        raise DataError(f"{data}: expected enough pictures for {missing[0]}, got {len(rows)} in {len(groups)} groups; raise its share")
    names = list(shares)
    order = sorted(range(len(rows)), key=lambda i: (dealt[i], i))
    plan = plan_of(dataset.format, dataset, ((names[dealt[i]], *rows[i]) for i in order))
    written = write_dataset(dataset.format, dataset, plan, target, link, strict)
    for sentence in written.sentences:
        warnings.warn(sentence, PellucidWarning, stacklevel=2)
    titles = distinct_names(dataset.names, dataset.category_ids)
    classes = {title: {side: int(counts[dealt == k, label].sum()) for k, side in enumerate(names)} for label, title in enumerate(titles)}
    return Dealt(written, classes, len(copies), sum(map(len, copies)))


def _once(splits: Mapping[str, Index]) -> list[tuple[Index, int]]:
    """Every picture once, whatever splits it is in; DataError where two of them know different objects of it."""
    seen: dict[Path, tuple[str, Index, int]] = {}
    for split, index in splits.items():
        for row in range(len(index)):
            path = index.path(row)
            first, other, place = seen.setdefault(path, (split, index, row))
            if other is not index and _contents(other, place) != _contents(index, row):
                raise DataError(
                    f"{path}: expected the same objects in every split that lists the picture, got others in {first} than in {split}; "
                    "bring its labels together in one of them."
                )
    return [(index, row) for _, index, row in seen.values()]


def _contents(index: Index, row: int) -> list[tuple[bytes, ...]]:
    """What is known of the objects of one image, in an order of its own."""
    return sorted(index.content(position) for position in range(int(index.start[row]), int(index.start[row + 1])))


def _labels(index: Index, row: int) -> np.ndarray:
    own = slice(int(index.start[row]), int(index.start[row + 1]))
    return index.labels[own][~index.ignore[own]]


def _all_groups(copies: Sequence[Sequence[int]], count: int) -> list[list[int]]:
    """The groups of copies, and every other picture as a group of its own."""
    taken = {i for group in copies for i in group}
    return [list(group) for group in copies] + [[i] for i in range(count) if i not in taken]


def deal(groups: Sequence[Sequence[int]], counts: np.ndarray, shares: Mapping[str, float], seed: int) -> np.ndarray:
    """The side (n,) of each picture, a number into `shares`; counts (n, classes) are objects of each class.

    Iterative stratification (Sechidis et al. 2011, on the stratification of multi-label data): the rarest class is dealt first, each
    group to the side that lacks most of it, then to the one that lacks most pictures.
    """
    rng = np.random.default_rng(seed)
    share = np.array(list(shares.values()))
    sides = np.zeros(sum(map(len, groups)), np.int64)
    sums = np.array([counts[group].sum(0) for group in groups])
    want = share[:, None] * sums.sum(0)  # (sides, classes)
    room = share * len(sides)
    left = [int(i) for i in rng.permutation(len(groups))]
    left.sort(key=lambda i: -len(groups[i]))  # large groups while there is room
    while left:
        held = sums[left].sum(0)
        rare = int(np.where(held > 0, held, np.iinfo(np.int64).max).argmin()) if held.any() else -1
        batch = [i for i in left if rare < 0 or sums[i, rare]]
        for i in batch:
            lack = room if rare < 0 else want[:, rare]
            side = max(range(len(share)), key=lambda k: (round(float(lack[k]), 6), round(float(room[k]), 6), -k))
            sides[list(groups[i])] = side
            want[side] -= sums[i]
            room[side] -= len(groups[i])
        chosen = set(batch)
        left = [i for i in left if i not in chosen]
    return sides
