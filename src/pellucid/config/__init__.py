"""Every setting of every verb: frozen dataclasses that are the command line, the YAML file and the Python signature at once.

The line under a field is its help. A value that cannot be used is refused here, in one sentence, before anything is read or written.
"""

from __future__ import annotations

from ..rules import REFUSED, STRIDE, check_key, merged, required
from .about import BenchConfig, EnvConfig, InfoConfig, ReportConfig, ZooConfig
from .data import CheckConfig, ConvertConfig, PreviewConfig, SplitConfig, StatsConfig, TilesConfig
from .export import ExportConfig
from .groups import grouped
from .train import AUGMENT_FIELDS, TrainConfig
from .use import PredictConfig, UiConfig, ValConfig

__all__ = [
    "AUGMENT_FIELDS",
    "REFUSED",
    "STRIDE",
    "BenchConfig",
    "CheckConfig",
    "ConvertConfig",
    "EnvConfig",
    "ExportConfig",
    "InfoConfig",
    "PredictConfig",
    "PreviewConfig",
    "ReportConfig",
    "SplitConfig",
    "StatsConfig",
    "TilesConfig",
    "TrainConfig",
    "UiConfig",
    "ValConfig",
    "ZooConfig",
    "check_key",
    "grouped",
    "merged",
    "required",
]
