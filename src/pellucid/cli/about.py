"""The verbs that describe models, machines and runs."""

from __future__ import annotations

import json
from typing import Any

from ..config import EnvConfig, InfoConfig, ReportConfig, merged, required
from .verb import Verb


def do_info(given: dict[str, Any]) -> int:
    from ..model import info

    config = merged(InfoConfig(), given)
    return show(info(config), config.json)


def do_env(given: dict[str, Any]) -> int:
    from ..train.folder import environment

    return show(environment(), merged(EnvConfig(), given).json)


def do_report(given: dict[str, Any]) -> int:
    from ..report import make_page

    config = merged(ReportConfig(), given)
    required(config, "run")
    return show({"report": str(make_page(config.run))}, config.json)


def show(figures: dict[str, Any], as_json: bool) -> int:
    """Print figures as JSON or as aligned lines."""
    if as_json:
        print(json.dumps(figures))
        return 0
    for key, value in figures.items():
        if isinstance(value, dict):
            value = ", ".join(f"{name} {part}" for name, part in value.items())
        print(f"{key:<13} {f'{value:,}' if isinstance(value, int) and not isinstance(value, bool) else value}")
    return 0


VERBS = {
    "info": Verb(InfoConfig, do_info, "pellucid info model=detect-n nc=80 imgsz=640 --json"),
    "report": Verb(ReportConfig, do_report, "pellucid report run=runs/detect/train"),
    "env": Verb(EnvConfig, do_env, "pellucid env --json"),
}
