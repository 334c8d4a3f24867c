"""Charts in Pillow alone: lines, a heat map, bars, the label plot. Drawn three times too large and shrunk, so that edges are smooth."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from PIL import Image, ImageDraw, ImageFont

OVER = 3  # oversampling
INK, SOFT, GRID, PAPER = (38, 43, 51), (112, 120, 132), (228, 231, 236), (255, 255, 255)
COLORS = ((31, 111, 235), (218, 86, 32), (26, 148, 107), (148, 84, 200), (200, 152, 8), (214, 61, 116), (92, 64, 51), (110, 118, 129))
Series = Mapping[str, tuple[Sequence[float], Sequence[float]]]


@dataclass
class Plot:
    """A framed area with a title and two axes; `at` takes data to pixels."""

    size: tuple[int, int]
    title: str
    x_range: tuple[float, float] = (0.0, 1.0)
    y_range: tuple[float, float] = (0.0, 1.0)
    margin: tuple[int, int, int, int] = (56, 40, 16, 44)  # left, top, right, bottom
    image: Image.Image = field(init=False)
    draw: ImageDraw.ImageDraw = field(init=False)

    def __post_init__(self) -> None:
        self.image = Image.new("RGB", (self.size[0] * OVER, self.size[1] * OVER), PAPER)
        self.draw = ImageDraw.Draw(self.image)
        self.text(self.margin[0], 19, self.title, 14, INK, "lm")

    @property
    def area(self) -> tuple[int, int, int, int]:
        """Left, top, right, bottom of the framed area, in pixels of the finished picture."""
        left, top, right, bottom = self.margin
        return left, top, self.size[0] - right, self.size[1] - bottom

    def at(self, x: float, y: float) -> tuple[float, float]:
        left, top, right, bottom = self.area
        (x0, x1), (y0, y1) = self.x_range, self.y_range
        return left + (x - x0) / (x1 - x0) * (right - left), bottom - (y - y0) / (y1 - y0) * (bottom - top)

    def text(self, x: float, y: float, words: str, size: int = 11, fill=SOFT, anchor: str = "mm") -> None:
        self.draw.text((x * OVER, y * OVER), words, fill, ImageFont.load_default(size * OVER), anchor)

    def line(self, points: Sequence[tuple[float, float]], fill, width: float = 1.0) -> None:
        self.draw.line([(x * OVER, y * OVER) for x, y in points], fill, max(1, round(width * OVER)), "curve")

    def box(self, corners: Sequence[float], fill, outline=None, radius: float = 0) -> None:
        self.draw.rounded_rectangle([value * OVER for value in corners], radius * OVER, fill, outline, OVER)

    def dot(self, point: tuple[float, float], radius: float, fill) -> None:
        x, y = point
        self.draw.ellipse([(x - radius) * OVER, (y - radius) * OVER, (x + radius) * OVER, (y + radius) * OVER], fill)

    def axes(self, x_label: str = "", whole_x: bool = False) -> None:
        """Grid lines with their numbers, and the name of the x axis."""
        left, _, right, bottom = self.area
        for value, words in numbered(ticks(*self.y_range)):
            y = self.at(0, value)[1]
            self.line([(left, y), (right, y)], GRID)
            self.text(left - 7, y, words, 10, SOFT, "rm")
        for value, words in numbered(ticks(*self.x_range, whole=whole_x)):
            self.text(self.at(value, 0)[0], bottom + 12, words, 10, SOFT)
        self.line([(left, bottom), (right, bottom)], SOFT)
        self.text((left + right) / 2, bottom + 30, x_label, 11, SOFT)

    def finish(self) -> Image.Image:
        """The picture at its real size."""
        return self.image.resize(self.size, Image.Resampling.LANCZOS)


def line_chart(
    series: Series, title: str, x_label: str = "", y_range: tuple[float, float] | None = None, size: tuple[int, int] = (480, 320)
) -> Image.Image:
    """Lines over a common x axis; values that are not finite are left out. `series`: {name: (x, y)}."""
    clean = {name: _finite(x, y) for name, (x, y) in series.items()}
    every_x = np.concatenate([xy[:, 0] for xy in clean.values()] or [np.zeros(0)])
    every_y = np.concatenate([xy[:, 1] for xy in clean.values()] or [np.zeros(0)])
    whole = bool(len(every_x)) and bool(np.all(every_x == np.round(every_x)))
    beside = len(clean) > 1 and _legend_width(list(clean)) > size[0] - 80 - 8 * len(title)
    plot = Plot(size, title, span(every_x), y_range or nice_span(every_y), (56, 40, 122 if beside else 16, 44))
    plot.axes(x_label, whole)
    for color, xy in zip(_colors(len(clean)), clean.values(), strict=True):
        points = [plot.at(x, y) for x, y in xy]
        if len(points) > 1:
            plot.line(points, color, 1.8)
        elif points:
            plot.dot(points[0], 3, color)
    if len(clean) > 1:
        _legend(plot, list(clean), beside)
    if not len(every_x):
        _empty(plot)
    return plot.finish()


def heat_map(
    matrix: np.ndarray, rows: Sequence[str], columns: Sequence[str], title: str, x_label: str = "", y_label: str = ""
) -> Image.Image:
    """Counts as tinted cells, each row scaled by its own sum; numbers are written where there is room. `matrix`: (rows, columns)."""
    cell = max(10, min(56, 900 // max(1, *matrix.shape)))
    wide = 34 + 7 * min(20, max(len(name) for name in rows))
    size = (
        wide + max(8 * len(title), cell * len(columns)) + 24,
        96 + cell * len(rows) + 6 * min(20, max(len(name) for name in columns)),
    )
    plot = Plot(size, title, margin=(wide, 46, size[0] - wide - cell * len(columns), size[1] - 46 - cell * len(rows)))
    share = matrix / np.maximum(matrix.sum(1, keepdims=True), 1e-9)
    for (i, j), value in np.ndenumerate(matrix):
        x, y = wide + j * cell, 46 + i * cell
        plot.box((x, y, x + cell - 1, y + cell - 1), tint(float(share[i, j])), radius=min(3, cell / 8))
        if cell >= 26 and value:
            plot.text(
                x + cell / 2 - 0.5, y + cell / 2 - 0.5, compact(float(value)), min(13, cell // 3), PAPER if share[i, j] > 0.55 else INK
            )
    _heat_names(plot, rows, columns, cell, x_label, y_label)
    return plot.finish()


def bars(names: Sequence[str], values: Sequence[float], title: str, limit: int = 24) -> Image.Image:
    """Horizontal bars, the largest first; what is beyond `limit` is counted in the last line."""
    order = np.argsort(-np.asarray(values, float), kind="stable")[:limit]
    height, wide = 20, 30 + 7 * min(20, max((len(names[i]) for i in order), default=4))
    plot = Plot((480, max(320, 60 + height * len(order) + 24)), title, margin=(wide, 40, 60, 24))
    left, top, right, _ = plot.area
    largest = max([float(values[i]) for i in order] or [1.0]) or 1.0
    for line, i in enumerate(order):
        y = top + line * height + height / 2
        plot.text(left - 8, y, shorten(names[i]), 11, INK, "rm")
        end = left + max(1.0, (right - left) * float(values[i]) / largest)
        plot.box((left, y - 7, end, y + 7), COLORS[0] if values[i] else GRID, radius=2)
        plot.text(end + 6, y, compact(float(values[i])), 10, SOFT, "lm")
    if len(names) > limit:
        plot.text(left, top + len(order) * height + 10, f"and {len(names) - limit} more", 11, SOFT, "lm")
    return plot.finish()


def density(x: np.ndarray, y: np.ndarray, title: str, x_label: str, y_label: str, cells: int = 48) -> Image.Image:
    """How often points of the unit square occur, y pointing down; darker is more."""
    counts, _, _ = np.histogram2d(y, x, bins=cells, range=((0, 1), (0, 1)))
    share = np.sqrt(counts / max(counts.max(), 1))
    plot = Plot((320, 320), title, margin=(44, 40, 16, 44), y_range=(1.0, 0.0))
    left, top, right, bottom = plot.area
    step_x, step_y = (right - left) / cells, (bottom - top) / cells
    for (i, j), value in np.ndenumerate(share):
        plot.box((left + j * step_x, top + i * step_y, left + (j + 1) * step_x, top + (i + 1) * step_y), tint(float(value)))
    plot.box((left, top, right, bottom), None, GRID)
    for value in (0, 0.5, 1):
        plot.text(left + value * (right - left), bottom + 12, number(value), 10)
        plot.text(left - 6, top + value * (bottom - top), number(value), 10, SOFT, "rm")
    plot.text((left + right) / 2, bottom + 30, f"{x_label} across, {y_label} down", 11)
    return plot.finish()


def label_plot(names: Sequence[str], counts: Sequence[int], centres: np.ndarray, sides: np.ndarray) -> Image.Image:
    """Objects by class, where they lie and how large they are. `centres`, `sides`: (n, 2) as shares of the image."""
    parts = [
        bars(names, counts, f"{int(sum(counts)):,} objects by class"),
        density(centres[:, 0], centres[:, 1], "where objects lie", "x", "y"),
        density(sides[:, 0], sides[:, 1], "how large they are", "width", "height"),
    ]
    return row_of(parts)


def training_curves(rows: Sequence[Mapping[str, float]]) -> Image.Image:
    """Losses, scores, rate and throughput over the epochs, from the rows of results.csv."""
    epochs = [row["epoch"] for row in rows]

    def pick(*starts: str) -> dict[str, tuple[list[float], list[float]]]:
        keys = [key for key in dict.fromkeys(key for row in rows for key in row) if key.startswith(starts)]
        known = [key for key in keys if any(math.isfinite(row.get(key, math.nan)) for row in rows)]
        return {key.partition("/")[2] or key: (epochs, [row.get(key, math.nan) for row in rows]) for key in known}

    charts = [line_chart({name: xy}, f"loss: {name}", "epoch") for name, xy in pick("train/").items()]
    scores = {name: xy for name, xy in pick("e2e/").items() if name.endswith(("/ap", "/ap50"))}
    charts.append(line_chart(scores, "score, end to end", "epoch", (0.0, 1.0)))
    charts.append(line_chart(pick("lr"), "learning rate", "epoch"))
    if rates := pick("images_per_s"):  # short runs have none to show
        charts.append(line_chart(rates, "training images a second", "epoch"))
    return grid_of(charts, 3)


def grid_of(images: Sequence[Image.Image], columns: int) -> Image.Image:
    """Pictures in rows of `columns`."""
    rows = [row_of(images[start : start + columns]) for start in range(0, len(images), columns)]
    sheet = Image.new("RGB", (max(row.width for row in rows), sum(row.height for row in rows)), PAPER)
    top = 0
    for row in rows:
        sheet.paste(row, (0, top))
        top += row.height
    return sheet


def row_of(images: Sequence[Image.Image]) -> Image.Image:
    """Pictures side by side, aligned at the top."""
    sheet = Image.new("RGB", (sum(image.width for image in images), max(image.height for image in images)), PAPER)
    left = 0
    for image in images:
        sheet.paste(image, (left, 0))
        left += image.width
    return sheet


def ticks(low: float, high: float, whole: bool = False) -> list[float]:
    """About five round numbers in [low, high]."""
    low, high = min(low, high), max(low, high)
    step = _step(high - low)
    step = max(1.0, round(step)) if whole else step
    first = math.ceil(low / step - 1e-9)
    return [index * step for index in range(first, math.floor(high / step + 1e-9) + 1)]


def span(values: np.ndarray) -> tuple[float, float]:
    """Smallest and largest value, or half a unit around them where they are as good as equal."""
    if not len(values):
        return 0.0, 1.0
    low, high = float(values.min()), float(values.max())
    return (low, high) if high - low > 1e-9 * max(abs(low), abs(high), 1e-3) else (low - 0.5, high + 0.5)


def nice_span(values: np.ndarray) -> tuple[float, float]:
    """A range that holds the values and ends on round numbers; from 0 where they are near it, as a single value is."""
    low, high = span(values)
    if len(values) and (low, high) != (values.min(), values.max()):  # as good as equal
        low, high = sorted((0.0, 2 * float(values[0]))) if abs(values[0]) > 1e-12 else (0.0, 1.0)
    if 0 <= low < 0.6 * high:
        low = 0.0
    step = _step(high - low)
    return math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step


def number(value: float) -> str:
    """A short form: 0.25, 40, 12k, 3e-05."""
    if value == 0:
        return "0"
    if abs(value) >= 10_000:
        return compact(value)
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"


def numbered(values: Sequence[float]) -> list[tuple[float, str]]:
    """Values with their short forms; where two of those would be alike, with as many digits as tell them apart."""
    forms = [number(value) for value in values]
    digits = max((len(f"{abs(value):.0f}") for value in values), default=0)
    while len(set(forms)) < len(set(values)) and (digits := max(4, digits + 1)) < 16:
        forms = [f"{value:.{digits}g}" for value in values]
    return list(zip(values, forms, strict=True))


def compact(value: float) -> str:
    """Counts with k and M; shares with two digits."""
    for limit, unit in ((1e6, "M"), (1e3, "k")):
        if value >= 10 * limit:
            return f"{value / limit:.0f}{unit}"
        if value >= limit and limit == 1e6:
            return f"{value / limit:.1f}{unit}"
    return f"{value:.0f}" if value == round(value) else f"{value:.2f}"


def shorten(name: str, limit: int = 20) -> str:
    return name if len(name) <= limit else name[: limit - 1] + "…"


def tint(share: float) -> tuple[int, int, int]:
    """Near white at 0, deep blue at 1."""
    ramp = np.array([(246, 248, 251), (173, 205, 245), (62, 131, 232), (14, 58, 138)], float)
    place = min(max(share, 0.0), 1.0) * (len(ramp) - 1)
    low = min(int(place), len(ramp) - 2)
    red, green, blue = (ramp[low] + (ramp[low + 1] - ramp[low]) * (place - low)).round().astype(int)
    return int(red), int(green), int(blue)


def _step(width: float) -> float:
    power = 10.0 ** math.floor(math.log10(width / 5))
    return next(power * factor for factor in (1, 2, 2.5, 5, 10) if width / (power * factor) <= 5.5)


def _finite(x: Sequence[float], y: Sequence[float]) -> np.ndarray:
    xy = np.stack([np.asarray(x, float), np.asarray(y, float)], 1)
    return xy[np.isfinite(xy).all(1)]


def _colors(count: int) -> list[tuple[int, int, int]]:
    return [COLORS[index % len(COLORS)] for index in range(count)]


def _legend_width(names: Sequence[str]) -> float:
    font = ImageFont.load_default(10)
    return sum(font.getlength(shorten(name, 14)) + 24 for name in names)


def _legend(plot: Plot, names: Sequence[str], beside: bool) -> None:
    """Names with their colours: to the right of the area if `beside`, else at the end of the title's line."""
    _, top, right, _ = plot.area
    font = ImageFont.load_default(10)
    x, y = (right + 10, top + 6) if beside else (right - _legend_width(names), 19)
    limit = 14
    for name, color in zip(names[:limit], _colors(len(names)), strict=False):
        plot.dot((x + 6, y), 3, color)
        plot.text(x + 13, y, shorten(name, 14), 10, INK, "lm")
        x, y = (x, y + 16) if beside else (x + font.getlength(shorten(name, 14)) + 24, y)
    if len(names) > limit:
        plot.text(x + 13, y, f"and {len(names) - limit} more", 10, SOFT, "lm")


def _empty(plot: Plot) -> None:
    left, top, right, bottom = plot.area
    plot.text((left + right) / 2, (top + bottom) / 2, "no finite values", 12)


def _heat_names(plot: Plot, rows: Sequence[str], columns: Sequence[str], cell: int, x_label: str, y_label: str) -> None:
    left, top, _, _ = plot.area
    font = min(11, max(7, cell - 2))
    for i, name in enumerate(rows):
        plot.text(left - 6, top + (i + 0.5) * cell, shorten(name), font, INK, "rm")
    bottom = top + len(rows) * cell
    upright = max(len(name) for name in columns) * 6 <= cell
    for j, name in enumerate(columns):
        x = left + (j + 0.5) * cell
        if upright:
            plot.text(x, bottom + 11, name, font, INK)
        else:
            _sideways(plot, x, bottom + 6, shorten(name), font)
    plot.text(left, top - 9, f"{y_label} down, {x_label} across" if x_label else "", 10, SOFT, "lm")


def _sideways(plot: Plot, x: float, y: float, words: str, size: int) -> None:
    """Words that run downwards from (x, y)."""
    font = ImageFont.load_default(size * OVER)
    left, top, right, bottom = font.getbbox(words)
    strip = Image.new("L", (int(right - left) + 4, int(bottom - top) + 4), 0)
    ImageDraw.Draw(strip).text((2 - left, 2 - top), words, 255, font)
    strip = strip.rotate(-90, expand=True)
    plot.image.paste(INK, (round(x * OVER - strip.width / 2), round(y * OVER)), strip)
