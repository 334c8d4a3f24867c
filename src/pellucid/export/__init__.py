"""Networks as files that run without torch: written, compared with torch, and run again behind the same door."""

from .runtime import Exported, is_exported, open_exported
from .write import Export, export

__all__ = ["Export", "Exported", "export", "is_exported", "open_exported"]
