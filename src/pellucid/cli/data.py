"""The verbs that look after data sets."""

from __future__ import annotations

import json
from typing import Any

from ..config import CheckConfig, TilesConfig, merged
from ..errors import UsageError
from .verb import Verb


def do_check(given: dict[str, Any]) -> int:
    from ..config import required
    from ..data.doctor import check
    from ..tasks import TASKS

    config = merged(CheckConfig(), given)
    required(config, "data")
    if config.task not in TASKS:
        raise UsageError(f"task: expected one of {', '.join(TASKS)}, got {config.task!r}; choose one of them")
    report = check(config.data, needs=TASKS[config.task]().needs, imgsz=config.imgsz)
    print(report.to_json() if config.json else "\n".join(report.lines()))
    return report.exit_code


def do_tiles(given: dict[str, Any]) -> int:
    from dataclasses import asdict

    from ..config import required
    from ..data.tile_files import write_tiles

    config = merged(TilesConfig(), given)
    required(config, "data", "out")
    report = write_tiles(config.data, config.out, config.tile, config.overlap, config.visible, config.strict)
    if config.json:
        print(json.dumps(asdict(report)))
        return 0
    for split, images in report.images.items():
        held = f"{report.objects[split]} objects, {report.ignored[split]} of them ignored, {report.left_out[split]} more left out"
        print(f"{split}: {images} pictures in {report.tiles[split]} tiles with {held}")
    print(f"data set ({report.format}): {report.out}")
    return 0


VERBS = {
    "data check": Verb(CheckConfig, do_check, "pellucid data check data=shop.yaml imgsz=640"),
    "data tiles": Verb(TilesConfig, do_tiles, "pellucid data tiles data=dota/ out=tiles/ tile=1024 overlap=200"),
}
