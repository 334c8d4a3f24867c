"""One page that tells a run: what was trained on what, how good it became, where it errs. No script, no other file, no network."""

from __future__ import annotations

from .details import report_scoring, report_training
from .page import make_page

__all__ = ["make_page", "report_scoring", "report_training"]
