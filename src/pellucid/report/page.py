"""report.html of a run folder, from the files in it alone; what a folder does not hold is left out of the page."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from .. import __version__
from ..errors import DataError, MissingFileError, PellucidError
from ..train.folder import read_args, read_rows, write_text
from . import parts
from .style import CSS

PAGE = "report.html"


@dataclass(frozen=True)
class Run:
    """What the files of a run folder say; empty where there is no such file."""

    folder: Path
    args: dict[str, Any]
    env: dict[str, Any]
    rows: list[dict[str, float]]  # of results.csv
    scores: dict[str, Any]
    details: dict[str, Any]

    @property
    def paths(self) -> dict[str, dict[str, Any]]:
        """The decode paths that were scored: {"e2e": {metric: value, "speed": ..., "per_class": ...}}."""
        return {name: part for name, part in self.scores.items() if isinstance(part, dict) and "per_class" in part}


SECTIONS: tuple[tuple[str, Callable[[Run], str]], ...] = (
    ("Data", parts.data),
    ("Training", parts.training),
    ("Scores", parts.scores),
    ("Precision, recall, F1", parts.curves),
    ("Who is taken for whom", parts.confusion),
    ("Classes", parts.classes),
    ("Where it errs most", parts.worst),
    ("Where it does best", parts.best),
    ("What the network was shown", parts.shown),
    ("Speed", parts.speed),
    ("Settings", parts.settings),
    ("Versions", parts.versions),
)


def make_page(folder: str | Path) -> Path:
    """Write report.html into a run folder; its path. MissingFileError where the folder is none, DataError for a damaged file."""
    run = read_run(Path(folder))
    try:
        page = page_of(run)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, PellucidError):
            raise
        raise DataError(
            f"{folder}: expected the files that the run wrote, got others ({type(error).__name__}: {error}); "
            "restore them, or score anew with val"
        ) from error
    path = run.folder / PAGE
    write_text(path, page)
    return path


def page_of(run: Run) -> str:
    """The page as HTML; the errors of Python where the files hold other than a run writes."""
    body = "".join(f"<section><h2>{title}</h2>{inside}</section>" for title, make in SECTIONS if (inside := make(run)))
    title, about = parts.title(run)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<title>{escape(title)}</title><link rel="icon" href="data:,"><style>{CSS}</style></head><body><main>'
        f"<header><h1>{escape(title)}</h1><p class=soft>{about}</p>{parts.cards(run)}{parts.notes(run)}</header>"
        f"{body}<footer>pellucid {__version__}. Everything on this page is in this one file; the run folder has the raw figures.</footer>"
        "</main></body></html>\n"
    )


def read_run(folder: Path) -> Run:
    """The files of a run folder. MissingFileError where it holds neither scores nor training figures, DataError for a damaged file."""
    if not any((folder / name).is_file() for name in ("scores.json", "results.csv")):
        raise MissingFileError(f"{folder}: expected a run folder with scores.json or results.csv, found neither; give that of train or val")
    args = read_args(folder) if (folder / "args.yaml").is_file() else {}
    read = {name: _read_json(folder / f"{name}.json") for name in ("env", "scores", "details")}
    return Run(folder, args, read["env"], read_rows(folder / "results.csv"), read["scores"], read["details"])


def _read_json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise DataError(f"{path}: expected the JSON object that the run wrote, got something else; restore or remove it")
    return content
