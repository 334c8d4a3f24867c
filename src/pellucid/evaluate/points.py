"""Keypoints as COCO records, and what the data decide about scoring them: the sigmas of OKS."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..geometry.keypoints import default_sigmas
from ..types import Instances

if TYPE_CHECKING:
    from ..data.index import Index


def encode_keypoints(instances: Instances, size: tuple[int, int]) -> list[dict[str, Any]]:
    """`keypoints` as x, y, visibility of every point, to a thousandth of a pixel, and `num_keypoints`, those that are labelled."""
    data = instances.shapes["keypoints"].data.double().numpy().round(3)
    counts = (data[..., 2] > 0).sum(1).tolist()
    return [{"keypoints": row.ravel().tolist(), "num_keypoints": count} for row, count in zip(data, counts, strict=True)]


def sigmas_of(index: Index) -> tuple[float, ...]:
    """The sigmas that the data state, else the default for their number of points."""
    if index.keypoints is not None:
        return index.keypoints.sigmas
    return default_sigmas(17)


def keypoint_arguments(index: Index) -> dict[str, Any]:
    """What the COCO tool must be told."""
    return {"kpt_oks_sigmas": list(sigmas_of(index))}


def stated_sigmas(index: Index) -> str:
    """For the line that states the protocol."""
    sigmas = sigmas_of(index)
    if len(set(sigmas)) == 1:
        return f"OKS sigma {sigmas[0]:.4g} for each of {len(sigmas)} points"
    return f"OKS sigmas {', '.join(f'{sigma:.4g}' for sigma in sigmas)}"


def area_note(index: Index, rows: list[int]) -> str | None:
    """A sentence about objects whose area, by which OKS measures, is that of their box; None where all state one or have a mask."""
    if "polygons" in index.columns:
        return None
    own = np.isin(index.image_rows(), rows) & ~index.ignore
    stated = np.asarray(index.columns["area"].values).reshape(-1) > 0 if "area" in index.columns else np.zeros_like(own)
    missing = int((own & ~stated).sum())
    return f"OKS takes the area of the box for {missing} of {int(own.sum())} objects, which state none" if missing else None
