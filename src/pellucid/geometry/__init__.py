"""Tensors in, tensors out: matrices and shapes. Imports nothing of the package.

Conventions, used everywhere: pixel i covers [i, i + 1); boxes are xyxy in pixels of the named frame; angles are radians from +x to +y.
"""

from .affine import Letterbox
from .boxes import Boxes
from .masks import Masks
from .polygons import Polygons
from .rle import Rle
from .shape import Shape

__all__ = ["Boxes", "Letterbox", "Masks", "Polygons", "Rle", "Shape"]
