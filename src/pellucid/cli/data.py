"""The verbs that look after data sets."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..config import CheckConfig, ConvertConfig, PreviewConfig, SplitConfig, StatsConfig, TilesConfig, merged, required
from ..errors import UsageError
from .verb import Verb


def needs_of(task: str) -> tuple[str, ...]:
    """The kinds of labels of a task; UsageError with the names of all."""
    from ..tasks import TASKS

    if task not in TASKS:
        raise UsageError(f"task: expected one of {', '.join(TASKS)}, got {task!r}; choose one of them")
    return TASKS[task]().needs


def do_check(given: dict[str, Any]) -> int:
    from ..data.doctor import check
    from ..data.repair import repair

    config = merged(CheckConfig(), given)
    required(config, "data")
    needs = needs_of(config.task)
    report = check(config.data, needs=needs, imgsz=config.imgsz, splits=(config.split,) if config.split else None)
    if not config.fix:
        print(report.to_json() if config.json else "\n".join(report.lines()))
        return report.exit_code
    fixed = repair(config.data, config.fix, needs if "task" in given else None)
    copy = check(fixed.written.out, needs=needs, imgsz=config.imgsz)
    if config.json:
        print(json.dumps({**report.to_dict(), "fixed": {**fixed.to_dict(), "exit_code": copy.exit_code}}, ensure_ascii=False, indent=2))
        return copy.exit_code
    left = [f"{finding.level:8}{finding.sentence}" for finding in copy.findings]
    print("\n".join([*report.lines(), "", *fixed.lines(), "", f"{'copy':8}{fixed.written.out}", *left]))
    return copy.exit_code


def do_stats(given: dict[str, Any]) -> int:
    from ..data.stats import stats

    config = merged(StatsConfig(), given)
    required(config, "data")
    found = stats(config.data, needs_of(config.task), config.imgsz, config.copies)
    print(found.to_json() if config.json else "\n".join(found.lines()))
    return 0


def do_preview(given: dict[str, Any]) -> int:
    from ..data.readers import read_dataset
    from ..data.writers import check_apart
    from ..results.preview import some_rows, write_sheet

    config = merged(PreviewConfig(), given)
    required(config, "data")
    dataset = read_dataset(config.data, needs_of(config.task), (config.split,))
    check_apart(Path(config.out).resolve(), dataset)
    index = dataset.splits[config.split]
    rows = some_rows(len(index), config.count, config.seed)
    out = write_sheet(index.take(rows), config.out)
    if config.json:
        print(json.dumps({"out": str(out), "split": config.split, "images": [str(index.path(row)) for row in rows]}, ensure_ascii=False))
    else:
        print(f"{len(rows)} of {len(index)} pictures of {config.split}: {out}")
    return 0


def do_convert(given: dict[str, Any]) -> int:
    from ..data.convert import convert

    config = merged(ConvertConfig(), given)
    required(config, "data", "out", "to")
    needs = needs_of(config.task) if config.task else None
    report = convert(config.data, config.out, config.to, needs, config.pictures == "link", config.strict)
    if config.json:
        print(json.dumps({key: value for key, value in asdict(report).items() if key != "sentences"}, ensure_ascii=False))
        return 0
    for split, images in report.images.items():
        print(f"{split}: {images} pictures with {report.objects[split]} objects")
    print(f"data set ({report.format}): {report.out}")
    return 0


def do_split(given: dict[str, Any]) -> int:
    from ..data.split import split

    config = merged(SplitConfig(), given)
    required(config, "data", "out")
    needs = needs_of(config.task) if config.task else None
    dealt = split(config.data, config.out, config.shares(), config.seed, needs, config.pictures == "link", config.strict)
    report = dealt.written
    if config.json:
        content = {key: value for key, value in asdict(report).items() if key != "sentences"}
        print(json.dumps({**content, "classes": dealt.classes, "groups": dealt.groups, "grouped": dealt.grouped}, ensure_ascii=False))
        return 0
    for name, images in report.images.items():
        objects = ", ".join(f"{title} {counts[name]}" for title, counts in dealt.classes.items())
        print(f"{name}: {images} pictures; objects: {objects}")
    print(f"{dealt.grouped} pictures in {dealt.groups} groups show the same; each group is in one split")
    print(f"data set ({report.format}): {report.out}")
    return 0


def do_tiles(given: dict[str, Any]) -> int:
    from ..data.tile_files import write_tiles

    config = merged(TilesConfig(), {"overlap": None, **given})  # none given goes by the tile that is
    required(config, "data", "out")
    report = write_tiles(config.data, config.out, config.tile, config.overlap or 0, config.visible, config.strict)
    if config.json:
        print(json.dumps(asdict(report)))
        return 0
    for split, images in report.images.items():
        kept = report.ignored[split] - report.left_out[split]
        held = f"{report.objects[split]} objects, {kept} of them ignored; {report.left_out[split]} cut parts and ignored ones left out"
        print(f"{split}: {images} pictures in {report.tiles[split]} tiles with {held}")
    print(f"data set ({report.format}): {report.out}")
    return 0


VERBS = {
    "data check": Verb(CheckConfig, do_check, "pellucid data check data=shop.yaml imgsz=640"),
    "data stats": Verb(StatsConfig, do_stats, "pellucid data stats data=shop.yaml imgsz=640"),
    "data preview": Verb(PreviewConfig, do_preview, "pellucid data preview data=shop.yaml count=16 split=val"),
    "data convert": Verb(ConvertConfig, do_convert, "pellucid data convert data=shop.yaml out=shop-coco to=coco"),
    "data split": Verb(SplitConfig, do_split, "pellucid data split data=shop.yaml out=shop-dealt val=0.2 seed=0"),
    "data tiles": Verb(TilesConfig, do_tiles, "pellucid data tiles data=dota/ out=tiles/ tile=1024 overlap=200"),
}
