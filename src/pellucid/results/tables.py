"""A result in the forms of other packages, which are imported only when they are asked for."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from ..errors import UsageError

if TYPE_CHECKING:
    from .result import Result


def data_frame(result: Result) -> Any:
    """A pandas DataFrame, one row an object; see `Result.to_df`."""
    pandas = _package("pandas", "to_df")
    columns: dict[str, Any] = {"name": _names(result), "class": _ids(result), "score": result.boxes.conf.numpy()}
    columns |= _columns(("x1", "y1", "x2", "y2"), result.boxes.xyxy)
    if result.rboxes is not None:
        columns |= _columns(("rcx", "rcy", "rw", "rh", "rtheta"), result.rboxes.xywhr)
    if result.keypoints is not None:
        count = result.keypoints.data.shape[1]
        heads = [f"point{k}_{part}" for k in range(count) for part in ("x", "y", "conf")]
        columns |= _columns(heads, result.keypoints.data.reshape(len(result), len(heads)))
    return pandas.DataFrame(columns)


def detections(result: Result) -> Any:
    """`supervision.Detections`; see `Result.to_supervision`."""
    supervision = _package("supervision", "to_supervision")
    data: dict[str, np.ndarray] = {"class_name": np.array(_names(result), dtype=str)}
    if result.rboxes is not None:
        data["xyxyxyxy"] = result.rboxes.xyxyxyxy.numpy()
    if result.keypoints is not None:
        data["keypoints"] = result.keypoints.data.numpy()
    return supervision.Detections(
        xyxy=result.boxes.xyxy.numpy(),
        mask=None if result.masks is None else result.masks.data.numpy(),
        confidence=result.boxes.conf.numpy(),
        class_id=np.array(_ids(result), dtype=np.int64),
        data=data,
    )


def _package(name: str, wanted_by: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        raise UsageError(f"{wanted_by}: expected the package {name}, found none; pip install {name}") from None


def _names(result: Result) -> list[str]:
    return [result.names[label] for label in result.instances.labels.tolist()]


def _ids(result: Result) -> list[int]:
    return [result.category_ids[label] for label in result.instances.labels.tolist()]


def _columns(heads: Any, values: Tensor) -> dict[str, np.ndarray]:
    return {head: values[:, i].numpy() for i, head in enumerate(heads)}
