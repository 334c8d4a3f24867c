"""Scripts beside the package as modules."""

import importlib
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def make():
    """goldens/make.py."""
    sys.path.insert(0, str(ROOT / "goldens"))
    try:
        return importlib.import_module("make")
    finally:
        sys.path.remove(str(ROOT / "goldens"))
