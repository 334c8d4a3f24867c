"""The verbs that train, score, predict and export."""

from __future__ import annotations

import json
import math
import shlex
import sys
from pathlib import Path
from typing import Any

from ..config import ExportConfig, PredictConfig, TrainConfig, UiConfig, ValConfig, merged
from ..errors import DataError
from .verb import Verb

ZERO = (  # the page "My score is 0" of the docs has more
    "look whether labels lie on the objects (train_batch0.jpg of the run, or pellucid data preview), and at pellucid data check\n"
    "few updates find nothing: take more epochs, nbs= equal to batch=, and weights to start from"
)
NO_TRUTH = "there is no score: the split has no object of these classes; pellucid data stats counts them"
NOTHING = 0.005  # a score below it has taught its reader nothing


def do_train(given: dict[str, Any]) -> int:
    from ..train.run import resume_config, train

    config = resume_config(given) if given.get("resume") else merged(TrainConfig(), given)
    result = train(config)
    if result.scores is not None:
        advise(result.scores)
    if config.json:
        print(json.dumps(result.to_dict()))
        return int(result.interrupted)
    if result.interrupted:
        print(f"stopped and saved; go on with: pellucid train resume={shlex.quote(str(result.run_dir))}")
        return 1
    assert result.scores is not None
    print(score_table(result.scores))
    print(f"best epoch {result.epoch} by {result.metric} = {result.value:.4f}")
    rate = f"{result.images_per_s:.1f} training images/s, " if math.isfinite(result.images_per_s) else ""
    print(f"{rate}{result.wall_s:.0f} s in all")
    print(f"run folder: {result.run_dir}{page_of(result.run_dir)}")
    return 0


def do_val(given: dict[str, Any]) -> int:
    from ..model import validate
    from ..zoo import is_untrained

    config = merged(ValConfig(), given)
    scores, folder = validate(config)
    if config.json:
        print(json.dumps({"model": config.model, "run_dir": str(folder), **scores.to_dict()}))
    else:
        print(score_table(scores))
        print(f"run folder: {folder}{page_of(folder)}")
    if not is_untrained(config.model):
        advise(scores)
    return 0


def do_predict(given: dict[str, Any]) -> int:
    from ..model import predict_files
    from ..zoo import is_untrained

    config = merged(PredictConfig(), given)
    count, unread, objects = 0, 0, 0

    def say(path: str, error: DataError) -> None:
        nonlocal unread
        unread += 1
        if config.json:
            print(json.dumps({"path": path, "error": str(error)}, ensure_ascii=False), flush=True)

    folder, results = predict_files(config, say)
    for result in results:
        count += 1
        objects += len(result)
        print(result.to_json() if config.json else result_line(result), flush=True)
    pictures = f"{count} picture{'s' * (count != 1)}"
    if not objects and not is_untrained(config.model):
        among = "" if config.classes is None else f", name other classes than {','.join(map(str, config.classes))}"
        print(f"nothing found in {pictures} at conf={config.conf:g}: lower conf{among}\n{ZERO}", file=sys.stderr)
    print(f"{pictures}; folder: {folder}", file=sys.stderr)
    return int(unread > 0)


def do_ui(given: dict[str, Any]) -> int:
    from ..ui import app

    page, address = app.serve(merged(UiConfig(), given))
    print(address, flush=True)
    print("on this machine alone; Ctrl-C ends it", file=sys.stderr)
    app.wait(page)
    return 0


def advise(scores: Any) -> None:
    """Say what to look at if every path's first score is all but 0, or what there is none of."""
    firsts = [next(iter(part.metrics.values())) for part in scores.paths.values()]
    if firsts and all(map(math.isnan, firsts)):
        print(NO_TRUTH, file=sys.stderr)
    elif not any(value >= NOTHING for value in firsts):
        print(f"the score is {max(firsts, default=0):.3g}\n{ZERO}", file=sys.stderr)


def page_of(folder: Path) -> str:
    """Where the report is, if there is one."""
    return f", look at {folder / 'report.html'}" if (folder / "report.html").is_file() else ""


def do_export(given: dict[str, Any]) -> int:
    from ..export import export

    config = merged(ExportConfig(), given)
    done = export(config)
    for line in done.gaps.warnings:
        print(f"warning: {line}", file=sys.stderr)
    print(json.dumps({"model": config.model, **done.to_dict()}) if config.json else "\n".join(done.lines()))
    return 0


def score_table(scores: Any) -> str:
    """Both paths side by side, the protocol, and the classes."""
    from ..data.index import distinct_names

    paths = list(scores.paths)
    names = list(next(iter(scores.paths.values())).metrics)
    rows = {name: [scores.paths[path].metrics[name] for path in paths] for name in names}
    heads = [*paths, "gap"] if len(paths) == 2 else [*paths]
    lines = [scores.protocol, f"{scores.images} images", " " * 12 + "".join(f"{head:>9}" for head in heads)]
    for name, values in rows.items():
        shown = [*values, values[0] - values[1]] if len(paths) == 2 else values
        lines.append(f"{name:<12}" + "".join(f"{value:>9.4f}" for value in shown))
    table = scores.paths[paths[0]].per_class
    if len(table) > 1:
        titles = distinct_names([row["name"] for row in table], [row["id"] for row in table])
        rows_of = zip(titles, table, strict=True)
        lines += [f"class {title:<20} {row['n']:>6} objects  ap {row['ap']:.4f}  ap50 {row['ap50']:.4f}" for title, row in rows_of]
    return "\n".join([*lines, *scores.notes])


def result_line(result: Any) -> str:
    """path: 3 tree, 1 car"""
    from collections import Counter

    counts = Counter(result.names[int(label)] for label in result.boxes.cls)
    return f"{result.path}: {', '.join(f'{count} {name}' for name, count in counts.most_common()) or 'nothing'}"


VERBS = {
    "train": Verb(TrainConfig, do_train, "pellucid train model=detect-n data=shop.yaml epochs=100 imgsz=640 batch=16"),
    "val": Verb(ValConfig, do_val, "pellucid val model=runs/detect/train/weights/best.safetensors data=shop.yaml"),
    "predict": Verb(PredictConfig, do_predict, "pellucid predict model=runs/detect/train/weights/best.safetensors source=photos/"),
    "ui": Verb(UiConfig, do_ui, "pellucid ui model=runs/detect/train/weights/best.safetensors"),
    "export": Verb(ExportConfig, do_export, "pellucid export model=runs/detect/train/weights/best.safetensors format=onnx"),
}
