"""The verbs that describe models, machines and runs."""

from __future__ import annotations

import json
from typing import Any

from ..config import BenchConfig, EnvConfig, InfoConfig, ReportConfig, ZooConfig, merged, required
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


def do_bench(given: dict[str, Any]) -> int:
    from ..model import bench

    config = merged(BenchConfig(), given)
    figures = bench(config)
    print(json.dumps(figures) if config.json else bench_table(figures))
    return 0


def do_zoo(given: dict[str, Any]) -> int:
    from ..zoo import shipped_table

    rows = shipped_table()
    if merged(ZooConfig(), given).json:
        print("\n".join(json.dumps(row, ensure_ascii=False) for row in rows))
    else:
        print("\n\n".join(zoo_entry(row) for row in rows))
    return 0


def bench_table(figures: dict[str, Any]) -> str:
    """Milliseconds a picture by stage, and the throughput."""
    given = ", ".join(f"{key} {figures[key]}" for key in ("imgsz", "batch", "device", "threads", "precision", "path"))
    lines = [f"{figures['model']}: {given}", f"{'ms a picture':<12}{'median':>9}{'10 %':>9}{'90 %':>9}{'share':>8}"]
    for stage, row in figures["ms"].items():
        lines.append(f"{stage:<12}{row['median']:>9.2f}{row['p10']:>9.2f}{row['p90']:>9.2f}{row['share']:>8.1%}")
    last = f"{figures['images_per_s']:.1f} images/s with reading beside the network, {figures['objects']} objects a picture"
    return "\n".join([*lines, last])


def zoo_entry(row: dict[str, Any]) -> str:
    """The lines of one shipped model."""
    by_path = [f"{path} " + ", ".join(f"{name} {value:.3f}" for name, value in found.items()) for path, found in row["scores"].items()]
    place = ", ".join(f"{key}={value}" for key, value in row["scored_on"].items())
    shown = {
        "task": f"{row['task']}, {row['imgsz']} px, {row['megabytes']} MB",
        "classes": ", ".join(row["classes"]),
        "trained on": row["trained_on"],
        "licence": row["licence"],
        "scores": f"{'; '.join(by_path)} ({place})",
    }
    return "\n".join([row["name"], *(f"  {key:<11}{value}" for key, value in shown.items())])


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
    "bench": Verb(BenchConfig, do_bench, "pellucid bench model=detect-n imgsz=640 batch=1 device=cpu --json"),
    "zoo": Verb(ZooConfig, do_zoo, "pellucid zoo --json"),
    "env": Verb(EnvConfig, do_env, "pellucid env --json"),
}
