"""Small real data sets that ship with the package; each folder holds its licence."""

from __future__ import annotations

from pathlib import Path

from ...errors import UsageError

NAMES = ("trees", "nuclei", "nuclei-obb", "quokka")


def sample_path(name: str) -> Path:
    """The data.yaml of a shipped sample; UsageError for another name."""
    if name not in NAMES:
        raise UsageError(f"Expected a shipped sample ({', '.join(NAMES)}), got {name!r}; name one of these.")
    return Path(__file__).resolve().parent / name / "data.yaml"
