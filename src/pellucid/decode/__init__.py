"""From the network's output to objects: top-k or suppression in canvas pixels, then back to original pixels."""

from .nms import suppress
from .restore import restore
from .run import PATHS, best, decode
from .topk import Rows, top_rows

__all__ = ["PATHS", "Rows", "best", "decode", "restore", "suppress", "top_rows"]
