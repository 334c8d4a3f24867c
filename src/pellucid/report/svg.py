"""Charts as inline SVG; the page's style sheet gives the colours, so that they are right on dark and on light paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

import numpy as np

from ..train.charts import compact, nice_span, numbered, shorten, span, ticks

Points = tuple[Sequence[float], Sequence[float]]
Range = tuple[float, float]
WIDTH, HEIGHT = 360, 230
LEFT, TOP, RIGHT, BOTTOM = 44, 12, 348, 188  # of the framed area
DIGIT = 6.6  # of the numbers, at their size
NAMED = 8  # lines with a colour of their own


def line_chart(
    series: Mapping[str, Points],
    title: str,
    x_label: str,
    y_range: Range | None = None,
    x_range: Range | None = None,
    mean: str = "",
    mark: tuple[float, str] | None = None,
) -> str:
    """A figure with lines over a common x axis: {name: (x, y)}; values that are not finite are left out.

    Up to `NAMED` lines have colours and a legend. Of more lines all are faint but the one called `mean`. `mark`: a place on the x axis that
    has a name.
    """
    clean = {name: _finite(x, y) for name, (x, y) in series.items()}
    every = np.concatenate([*clean.values(), np.zeros((0, 2))])
    if not len(every):
        return _figure(title, '<p class="none">no finite values</p>')
    x_range, y_range = x_range or span(every[:, 0]), y_range or nice_span(every[:, 1])
    whole = bool(np.all(every[:, 0] == np.round(every[:, 0])))
    parts = [*_axes(x_range, y_range, x_label, whole)]
    many = len(clean) > NAMED
    for place, (name, xy) in enumerate(clean.items()):
        style = "mean" if name == mean else "faint" if many else f"s{place}"
        parts.append(_line([_at(x, y, x_range, y_range) for x, y in xy], style, name))
    parts += _mark(*mark, x_range) if mark else []
    words = f"{title}: {len(clean)} lines over {x_label}"
    wider = max(0, round(DIGIT * max(len(shown) for _, shown in numbered(ticks(*y_range)))) - (LEFT - 8))  # for long numbers on the left
    drawn = f'<svg viewBox="{-wider} 0 {WIDTH + wider} {HEIGHT}" role="img" aria-label="{escape(words)}">{"".join(parts)}</svg>'
    return _figure(title, drawn + _legend(list(clean), mean, many))


def confusion(counts: Sequence[Sequence[int]], names: Sequence[str]) -> str:
    """Counts by true class (down) and found class (across), tinted by their share of the true class."""
    table = np.asarray(counts, dtype=float)
    share = table / np.maximum(table.sum(1, keepdims=True), 1)
    cell = 44 if len(names) <= 8 else 26 if len(names) <= 16 else 15
    longest = max(len(shorten(name, 14)) for name in names)
    left, top = 14 + 6.2 * longest, 18 + 4.2 * longest
    width, height = left + cell * len(names) + 4 * longest, top + cell * len(names) + 4
    parts = []
    for i, name in enumerate(names):
        middle = (i + 0.5) * cell
        parts.append(f'<text class="name" x="{left - 5:.1f}" y="{top + middle + 3.5:.1f}" text-anchor="end">{_short(name)}</text>')
        x, y = left + middle, top - 6
        parts.append(f'<text class="name" x="{x:.1f}" y="{y:.1f}" transform="rotate(-38 {x:.1f} {y:.1f})">{_short(name)}</text>')
    for (i, j), value in np.ndenumerate(table):
        x, y = left + j * cell, top + i * cell
        tip = f"{names[i]} found as {names[j]}: {value:.0f} ({share[i, j]:.0%})"
        tint = 0.07 + 0.88 * share[i, j]
        rect = f'<rect class="cell" x="{x:.1f}" y="{y:.1f}" width="{cell - 2}" height="{cell - 2}" rx="3" fill-opacity="{tint:.2f}">'
        parts.append(f"{rect}<title>{escape(tip)}</title></rect>")
        if value and cell >= 26:
            kind = "on" if share[i, j] > 0.5 else "name"
            place = f'x="{x + cell / 2 - 1:.1f}" y="{y + cell / 2 + 3:.1f}"'
            parts.append(f'<text class="{kind}" {place} text-anchor="middle">{compact(float(value))}</text>')
    box = f'viewBox="0 0 {width:.0f} {height:.0f}" style="width:{width:.0f}px"'
    return f'<div class="scroll"><svg class="matrix" {box} role="img" aria-label="confusion matrix">{"".join(parts)}</svg></div>'


def bar(share: float) -> str:
    """A bar of 0 to 1, for a table."""
    return f'<span class="bar"><i style="width:{100 * min(max(share, 0.0), 1.0):.1f}%"></i></span>'


def _at(x: float, y: float, x_range: Range, y_range: Range) -> tuple[float, float]:
    across = (x - x_range[0]) / (x_range[1] - x_range[0])
    up = (y - y_range[0]) / (y_range[1] - y_range[0])
    return LEFT + across * (RIGHT - LEFT), BOTTOM - up * (BOTTOM - TOP)


def _line(points: Sequence[tuple[float, float]], style: str, name: str) -> str:
    tip = f"<title>{escape(name)}</title>"
    if len(points) == 1:
        return f'<circle class="dot {style}" cx="{points[0][0]:.1f}" cy="{points[0][1]:.1f}" r="3.5">{tip}</circle>'
    return f'<polyline class="line {style}" points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in points)}">{tip}</polyline>'


def _axes(x_range: Range, y_range: Range, x_label: str, whole: bool) -> list[str]:
    parts = []
    for value, shown in numbered(ticks(*y_range)):
        y = _at(0, value, (0, 1), y_range)[1]
        parts.append(f'<path class="rule" d="M{LEFT} {y:.1f}H{RIGHT}"/><text x="{LEFT - 6}" y="{y + 3.5:.1f}" text-anchor="end">')
        parts.append(f"{shown}</text>")
    for value, shown in numbered(ticks(*x_range, whole=whole)):
        x = _at(value, 0, x_range, (0, 1))[0]
        parts.append(f'<text x="{x:.1f}" y="{BOTTOM + 15}" text-anchor="middle">{shown}</text>')
    middle = (LEFT + RIGHT) / 2
    parts.append(f'<path class="axis" d="M{LEFT} {BOTTOM}H{RIGHT}"/>')
    parts.append(f'<text x="{middle}" y="{BOTTOM + 34}" text-anchor="middle">{escape(x_label)}</text>')
    return parts


def _mark(x: float, words: str, x_range: Range) -> list[str]:
    """An upright line at x with words beside it, on the side where there is more room."""
    place = _at(x, 0, x_range, (0, 1))[0]
    left = place > (LEFT + RIGHT) / 2
    side = f'x="{place - 5 if left else place + 5:.1f}" y="{TOP + 9}" text-anchor="{"end" if left else "start"}"'
    return [f'<path class="mark" d="M{place:.1f} {TOP}V{BOTTOM}"/><text class="name told" {side}>{escape(words)}</text>']


def _legend(names: Sequence[str], mean: str, many: bool) -> str:
    if len(names) < 2:
        return ""
    if many:
        faint = len(names) - (mean in names)
        shown = [("mean", mean)] * (mean in names) + [("faint", f"{faint} classes")]
    else:
        shown = [("mean" if name == mean else f"s{place}", name) for place, name in enumerate(names)]
    return '<p class="legend">' + "".join(f'<span><i class="{style}"></i>{_short(name, 24)}</span>' for style, name in shown) + "</p>"


def _figure(title: str, inside: str) -> str:
    return f"<figure><figcaption>{escape(title)}</figcaption>{inside}</figure>"


def _finite(x: Sequence[float], y: Sequence[float]) -> np.ndarray:
    xy = np.stack([np.asarray(x, float), np.asarray(y, float)], 1)
    return xy[np.isfinite(xy).all(1)]


def _short(name: str, limit: int = 14) -> str:
    return escape(shorten(name, limit))
