"""Files -> `Index` -> batches."""

from .columns import Ragged
from .findings import Finding
from .images import image_size, read_image
from .index import DataSet, Index
from .readers import open_dataset

__all__ = ["DataSet", "Finding", "Index", "Ragged", "image_size", "open_dataset", "read_image"]
