"""From pictures to results: sources are read one by one, looked at in small batches, and given back in their order."""

from .run import PredictSettings, predict
from .sources import Source, open_sources

__all__ = ["PredictSettings", "Source", "open_sources", "predict"]
