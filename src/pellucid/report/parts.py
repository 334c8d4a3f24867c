"""The sections of the page; each is empty where the run folder has nothing for it."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from PIL import Image

from ..config import TrainConfig, ValConfig
from ..errors import DataError
from . import svg

MATRIX = 40  # classes up to which the confusion matrix is drawn
MIXED = 10  # pairs of classes in the list of mix-ups
WIDE = 1000  # pixels of an embedded sheet
LEAST_F1 = 0.05  # below it the best threshold is that of chance
ROLES = {"right": "found, as labelled", "wrong": "found where nothing of that class is labelled", "missed": "labelled, not found"}
PATHS = {"e2e": "end to end", "nms": "with suppression"}


def title(run: Any) -> tuple[str, str]:
    """The heading, and the line below it."""
    about = run.details.get("about", {})
    model, data = (about.get(name) or run.args.get(name) or "?" for name in ("model", "data"))
    verb = "trained" if run.rows else "scored"
    facts = [about.get("task"), f"scale {about['scale']}" if about.get("scale") else None, run.details.get("when"), run.folder.name]
    return f"{Path(str(model)).stem} {verb} on {data_name(str(data))}", escape(" · ".join(str(fact) for fact in facts if fact))


def data_name(data: str) -> str:
    """The folder of a data.yaml, else the last part of a path."""
    path = Path(data)
    return path.parent.name if path.name == "data.yaml" and path.parent.name else path.name or data


def cards(run: Any) -> str:
    """The few figures that matter most."""
    shown = []
    for path, part in run.paths.items():
        for name in [name for name in part if name.endswith(("/ap", "/ap50"))][:2]:
            kind, _, figure = name.partition("/")
            shown.append((number(part[name]), f"{kind} {figure.upper()}, {PATHS.get(path, path)}"))
    fit = run.details.get("training") or {}
    if fit.get("epoch") and fit.get("value") is not None:
        shown.append((f"{fit['epoch']} of {len(run.rows)}", "best epoch"))
    if fit.get("wall_s"):
        shown.append((_duration(fit["wall_s"]), "training, all in all"))
    return _cards(shown)


def notes(run: Any) -> str:
    return "".join(f"<p>{escape(str(note))}</p>" for note in run.scores.get("notes") or [])


def data(run: Any) -> str:
    """Pictures and objects of each split."""
    splits = run.details.get("splits") or {}
    rows = [[name, *(f"{part[key]:,}" for key in ("images", "objects", "empty", "ignored"))] for name, part in splits.items()]
    count = len(run.details.get("names") or [])
    told = f"<p>{escape(str(run.args.get('data', '')))}, {count} class{'es' * (count != 1)}.</p>"
    heads = ["split", "pictures", "objects", "pictures without objects", "ignored regions"]
    return told + table(heads, rows) if rows else ""


def training(run: Any) -> str:
    """Losses, scores, rate and throughput over the epochs."""
    if not run.rows:
        return ""
    epochs = [row["epoch"] for row in run.rows]

    def pick(start: str, ends: tuple[str, ...] = ("",)) -> dict[str, svg.Points]:
        keys = [key for key in dict.fromkeys(key for row in run.rows for key in row) if key.startswith(start) and key.endswith(ends)]
        return {key.partition("/")[2] or key: (epochs, [row.get(key, math.nan) for row in run.rows]) for key in keys}

    found = pick("e2e/", ("/ap", "/ap50"))
    highest = max((value for _, values in found.values() for value in values if math.isfinite(value)), default=1.0)
    top = next(top for top in (0.05, 0.2, 0.5, 1.0) if highest <= top)
    charts = [svg.line_chart(found, "score, end to end", "epoch", (0, top))]
    charts += [svg.line_chart({name: xy}, f"loss: {name}", "epoch") for name, xy in pick("train/").items()]
    charts += [svg.line_chart(pick("lr"), "learning rate", "epoch")]
    rates = pick("images_per_s")
    if any(math.isfinite(value) for _, values in rates.values() for value in values):  # short runs have none to show
        charts += [svg.line_chart(rates, "training pictures a second", "epoch")]
    fit = run.details.get("training") or {}
    best = f"<p>The weights kept are those of epoch {fit['epoch']}, chosen by {escape(fit['metric'])}.</p>" if fit.get("epoch") else ""
    skipped = run.rows[-1].get("skipped", 0)
    told = f"<p>{skipped:.0f} steps with gradients that were not finite were skipped.</p>" if skipped else ""
    return best + told + grid(charts)


def scores(run: Any) -> str:
    """Every metric by every path."""
    paths = run.paths
    if not paths:
        return ""
    names = [name for name, value in next(iter(paths.values())).items() if "/" in name and not isinstance(value, dict | list)]
    heads = ["metric", *(PATHS.get(path, path) for path in paths), *(["gap"] if len(paths) == 2 else [])]
    rows = []
    for name in names:
        values = [part.get(name) for part in paths.values()]
        gap = [signed(values[0] - values[1])] if len(values) == 2 and None not in values else [""] * (len(values) == 2)
        rows.append([name, *(number(value) for value in values), *gap])
    return table(heads, rows) + f"<p><small>{escape(str(run.scores.get('protocol', '')))}.</small></p>"


def curves(run: Any) -> str:
    """Precision over recall, and F1 over the score threshold."""
    curves = run.details.get("curves") or {}
    if not curves.get("classes"):
        return ""
    names, steps = run.details["names"], [place / 100 for place in range(101)]
    mean = f"mean of {curves['known']} classes"

    def lines(kind: str) -> dict[str, svg.Points]:
        found: dict[str, svg.Points] = {names[row["class"]]: (steps, _floats(row[kind])) for row in curves["classes"]}
        if curves["known"] == 1:
            return found
        return {**found, mean: (steps, _floats(curves["mean"][kind]))}

    best = curves["best"]
    charts = [
        svg.line_chart(lines("precision"), "precision over recall, IoU 0.5", "recall", (0, 1), (0, 1), mean),
        svg.line_chart(
            lines("f1"),
            "F1 over the score threshold, IoU 0.5",
            "score threshold",
            (0, 1),
            (0, 1),
            mean,
            (best["threshold"], f"best F1 at {best['threshold']:.2f}") if best["f1"] >= LEAST_F1 else None,
        ),
    ]
    told = (
        f"F1 is best, {best['f1']:.3f}, at the score threshold {best['threshold']:.2f}: a good <code>conf=</code> to begin with. "
        "The pictures below are judged at it; the matrix of who is taken for whom has a threshold of its own."
    )
    if best["f1"] < LEAST_F1:
        told = (
            f"F1 is nowhere above {best['f1']:.3f}: too little is found for any threshold to be advised. Look first whether the labels "
            "lie on the objects (<code>train_batch0.jpg</code> of the run), and whether there were updates enough: from random weights "
            "a few thousand."
        )
    path = escape(PATHS.get(run.details["path"], run.details["path"]))
    return f"<p>{told} The path is {path}.</p>" + grid(charts)


def confusion(run: Any) -> str:
    """The matrix where it can be read, and the pairs that are mixed up most."""
    matrix = run.details.get("confusion")
    if not matrix:
        return ""
    names, counts = [*run.details["names"], "background"], matrix["counts"]
    last = len(names) - 1
    mixed = sorted(((counts[i][j], i, j) for i in range(last + 1) for j in range(last + 1) if i != j and counts[i][j]), reverse=True)
    rows = [[names[i], names[j] if j < last else "not found", f"{count:,}"] for count, i, j in mixed[:MIXED]]
    rows = [["nothing labelled" if row[0] == "background" else row[0], *row[1:]] for row in rows]
    told = (
        f"<p>A row is a true class, a column what was found; the shade is the share of the row. In the last column are objects that "
        f"were missed, in the last row findings where nothing is labelled.</p>"
        f"<p>Counted at the score threshold {matrix['conf']:g}, which is the same in every run{_not_best(run, matrix['conf'])}, "
        f"and IoU {matrix['iou']:g}.</p>"
    )
    few = last <= MATRIX
    drawn = f'<figure class="fit">{svg.confusion(counts, names)}</figure>' if few else f"<p>{last} classes are too many to draw.</p>"
    listed = f"<h3>Most frequent mix-ups</h3>{table(['true', 'found as', 'times'], rows, text=(1,))}" if rows else ""
    return told + drawn + listed


def _not_best(run: Any, threshold: float) -> str:
    """What sets a threshold apart from the one of the best F1, if that is another."""
    best = _best_threshold(run)
    return "" if best is None or abs(best - threshold) < 0.005 else f" (that of the best F1 here is {best:.2f})"


def _best_threshold(run: Any) -> float | None:
    """The score threshold of the best F1; None where next to nothing was found that counts."""
    best = (run.details.get("curves") or {}).get("best") or {}
    return best["threshold"] if best.get("f1", 0) >= LEAST_F1 else None


def classes(run: Any) -> str:
    """AP of each class, the weakest first."""
    if not run.paths:
        return ""
    path, part = next(iter(run.paths.items()))
    ordered = sorted(enumerate(part["per_class"]), key=lambda place: (place[1]["ap"] is None, place[1]["ap"] or 0.0))
    rows = [
        [escape(str(row["name"])), str(row["id"]), f"{row['n']:,}", number(row["ap"]), number(row["ap50"]), svg.bar(row["ap"] or 0.0)]
        for _, row in ordered
    ]
    trained = ((run.details.get("splits") or {}).get("train") or {}).get("by_class")
    if trained:
        rows = [[*cells[:3], f"{trained[label]:,}", *cells[3:]] for cells, (label, _) in zip(rows, ordered, strict=True)]
    heads = ["class", "id", "objects scored", *(["objects trained on"] if trained else []), "AP", "AP50", ""]
    told = f"<p>Weakest first; {escape(PATHS.get(path, path))}.</p>" if len(rows) > 1 else ""
    return told + table(heads, rows, tall=len(rows) > 15, plain=False)


def worst(run: Any) -> str:
    shown = run.details.get("examples") or {}
    if not shown.get("worst"):
        return ""
    told = f"<p>Pictures with the lowest F1, {_judged(run)}. Left the labels, right what was found.</p>"
    key = "".join(f'<span><i style="color:var(--{role})"></i>{words}</span>' for role, words in ROLES.items())
    return f'{told}<p class="legend key">{key}</p>{_pairs(run, shown["worst"])}'


def best(run: Any) -> str:
    pairs = _pairs(run, (run.details.get("examples") or {}).get("best") or [])
    return pairs and f"<p>Pictures with the highest F1, {_judged(run)}.</p>{pairs}"


def _judged(run: Any) -> str:
    """How the pictures were judged."""
    shown = run.details["examples"]
    of_best = " (that of the best F1)" * (_best_threshold(run) is not None)
    return f"judged at the score threshold {shown['threshold']:.2f}{of_best} and box IoU {shown['iou']:g}"


def shown(run: Any) -> str:
    """The first training batch, as augmented."""
    sheet = run.folder / "train_batch0.jpg"
    return f"<figure>{embedded(sheet, 'the first training batch')}</figure>" if sheet.is_file() else ""


def speed(run: Any) -> str:
    """Milliseconds a picture of each path; pictures a second of training."""
    stages = {"pre": "reading", "network": "network", "post": "decoding"}
    rows = []
    for path, part in run.paths.items():
        times = [part["speed"].get(stage) or 0.0 for stage in stages]
        rows.append([PATHS.get(path, path), *(f"{value:.2f}" for value in times), f"{sum(times):.2f}"])
    told = table(["ms a picture", *stages.values(), "sum"], rows) if rows else ""
    rate = (run.details.get("training") or {}).get("images_per_s")
    waits = [row["wait"] for row in run.rows if math.isfinite(row.get("wait", math.nan))]
    if rate:
        waited = f", {sum(waits) / len(waits):.0%} of the time waiting for pictures" if waits else ""
        told += f"<p>Training took {rate:.1f} pictures a second{waited}.</p>"
    return told


def settings(run: Any) -> str:
    """Those that differ from the defaults, and all of them behind a click."""
    if not run.args:
        return ""
    kind = TrainConfig if "epochs" in run.args else ValConfig
    own = {name: value for name, value in run.args.items() if getattr(kind, name, None) != value and value is not None}
    return _facts(own) + f"<details><summary>all {len(run.args)} settings</summary>{_facts(run.args)}</details>"


def versions(run: Any) -> str:
    flat = {**run.env, **(run.env.get("packages") or {})}
    gpus = ", ".join(str(gpu.get("name")) for gpu in run.env.get("gpus") or []) or "none"
    return _facts({**{key: value for key, value in flat.items() if key not in ("packages", "gpus")}, "gpus": gpus}) if run.env else ""


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], text: tuple[int, ...] = (), tall: bool = False, plain: bool = True) -> str:
    """A table that scrolls inside the page; cells are words if `plain`, else HTML; `text` are columns aligned to the left."""
    head = "".join(f"<th{' class=t' if place in text else ''}>{escape(word)}</th>" for place, word in enumerate(heads))
    body = ""
    for row in rows:
        cells = (f"<td{' class=t' if place in text else ''}>{escape(cell) if plain else cell}</td>" for place, cell in enumerate(row))
        body += f"<tr>{''.join(cells)}</tr>"
    return f'<div class="scroll{" tall" * tall}"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def grid(figures: Iterable[str]) -> str:
    return f'<div class="grid">{"".join(figures)}</div>'


def number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def signed(value: float) -> str:
    """With a digit more than the figures it is the difference of."""
    return f"{round(value, 4) + 0.0:+.4f}".replace("-", "−")


def embedded(path: Path, words: str) -> str:
    """A picture of the run folder inside the page, no wider than `WIDE`; DataError where it is none."""
    try:
        content = path.read_bytes()
        with Image.open(io.BytesIO(content)) as image:
            size = image.size
            if image.width > WIDE:
                size = (WIDE, max(1, round(image.height * WIDE / image.width)))
                content = _jpeg(image.convert("RGB").resize(size, Image.Resampling.LANCZOS))
    except (OSError, ValueError, Image.DecompressionBombError):
        raise DataError(f"{path}: expected a picture that the run wrote, got something else; restore or remove it") from None
    kind = "png" if content[:4] == b"\x89PNG" else "jpeg"
    place = f'width="{size[0]}" height="{size[1]}" alt="{escape(words)}"'
    return f'<img {place} src="data:image/{kind};base64,{base64.b64encode(content).decode()}">'


def _jpeg(image: Image.Image) -> bytes:
    target = io.BytesIO()
    image.save(target, "JPEG", quality=80)
    return target.getvalue()


def _pairs(run: Any, told: Sequence[Mapping[str, Any]]) -> str:
    figures = []
    for one in told:
        files = [run.folder / name for name in one["files"]]
        if not all(file.is_file() for file in files):
            continue
        words = f"{one['hits']} found, {one['missed']} missed, {one['false']} wrong"
        caption = f"<figcaption><b>{escape(one['picture'])}</b> F1 {one['f1']:.2f}: {words}</figcaption>"
        images = "".join(embedded(file, f"{kind} of {one['picture']}") for kind, file in zip(("labels", "findings"), files, strict=True))
        figures.append(f'<figure>{caption}<div class="pair">{images}</div></figure>')
    return f'<div class="pairs">{"".join(figures)}</div>' if figures else ""


def _cards(shown: Iterable[tuple[str, str]]) -> str:
    inside = "".join(f'<div class="card"><b>{escape(value)}</b><span>{escape(words)}</span></div>' for value, words in shown)
    return f'<div class="cards">{inside}</div>' if inside else ""


def _facts(values: Mapping[str, Any]) -> str:
    rows = [[name, "none" if value is None else str(value)] for name, value in values.items()]
    return table(["", ""], rows, text=(1,)).replace("<thead><tr><th></th><th class=t></th></tr></thead>", "")


def _duration(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {seconds:02} s" if minutes else f"{seconds} s"


def _floats(values: Sequence[float | None]) -> list[float]:
    return [math.nan if value is None else value for value in values]
