"""Line charts as inline SVG. Colours come from the style sheet, so that charts follow the theme of the page.

Charts can be read without the script, which adds values under the pointer or the arrow keys. Each line has its own
dashes and its name at its end, so that colour is never needed.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import accumulate, pairwise

WIDTH, HEIGHT = 420, 240
LEFT, TOP, BOTTOM = 48, 12, 34
LETTER_WIDTH = 6.9  # pixels, of a label, on average
LINE_STYLES = 7  # colours and dashes in style.css
MAX_POINTS = 600  # per line: more than a screen can show
SMOOTHING = 0.05  # initial window of the moving average, as a share of the line


@dataclass(frozen=True)
class Line:
    name: str  # drawn at its end
    points: Sequence[tuple[float, float]]
    style: int = 0
    smooth: bool = False
    dots: bool = False


@dataclass(frozen=True)
class Frame:
    """The axes: converts values to pixels."""

    x: tuple[float, float]
    y: tuple[float, float]
    right: float  # margin in pixels for the names of the lines
    width: float = WIDTH
    height: float = HEIGHT

    def x_at(self, x: float) -> float:
        low, high = self.x
        return LEFT + (x - low) / (high - low) * (self.width - LEFT - self.right)

    def y_at(self, y: float) -> float:
        low, high = self.y
        return self.height - BOTTOM - (y - low) / (high - low) * (self.height - TOP - BOTTOM)

    def path(self, points: Sequence[tuple[float, float]]) -> str:
        return "M" + "L".join(f"{self.x_at(x):.1f},{self.y_at(y):.1f}" for x, y in points)

    def axes(self, x_name: str, integer: bool = False) -> str:
        """Draw grid lines, tick labels and the name of the x axis."""
        left, right, bottom = LEFT, self.width - self.right, self.height - BOTTOM
        parts = []
        for value in ticks(*self.y):
            y = self.y_at(value)
            parts.append(f"<line x1='{left}' x2='{right}' y1='{y:.1f}' y2='{y:.1f}'/>")
            parts.append(f"<text x='{left - 6}' y='{y + 4:.1f}' text-anchor='end'>{format_number(value)}</text>")
        for value in ticks(*self.x, about=6, integer=integer):
            x = self.x_at(value)
            parts.append(f"<line class='tick' x1='{x:.1f}' x2='{x:.1f}' y1='{bottom}' y2='{bottom + 4}'/>")
            parts.append(f"<text x='{x:.1f}' y='{bottom + 16}' text-anchor='middle'>{format_number(value)}</text>")
        middle = (left + right) / 2
        parts.append(f"<text x='{middle:.0f}' y='{self.height - 4}' text-anchor='middle'>{escape(x_name)}</text>")
        return f"<g class='axes'>{''.join(parts)}</g>"


def chart(title: str, lines: Sequence[Line], x_name: str = "epoch", from_zero: bool = False) -> str:
    """Return a figure; without points it states that nothing was logged."""
    lines = [Line(k.name, downsample(k.points), k.style, k.smooth, k.dots) for k in lines if k.points]
    if not lines:
        return f"<figure class='chart'><h3>{escape(title)}</h3><p>No values logged.</p></figure>\n"
    every = [point for k in lines for point in k.points]
    frame = Frame(
        x=_axis_range([x for x, _ in every], from_zero=x_name == "epoch"),
        y=_axis_range([y for _, y in every], from_zero, margin=0.05),
        right=max(12.0, 10 + LETTER_WIDTH * max(len(k.name) for k in lines)),
    )
    drawn = "".join(_draw(frame, k, i) for i, k in enumerate(lines))
    data = {
        "x": frame.x, "y": frame.y, "left": LEFT, "right": frame.width - frame.right, "top": TOP,
        "bottom": frame.height - BOTTOM, "axis": x_name,
        "lines": [
            {"name": k.name or title, "smooth": k.smooth,
             "points": [(float(f"{x:.6g}"), float(f"{y:.6g}")) for x, y in k.points]}
            for k in lines
        ],
    }  # fmt: skip
    summary = "; ".join(f"{k.name} from {k.points[0][1]:.4g} to {k.points[-1][1]:.4g}".strip() for k in lines)
    return (
        f"<figure class='chart' data-chart='{escape(json.dumps(data), quote=True)}'><h3>{escape(title)}</h3>"
        f"<svg viewBox='0 0 {frame.width} {frame.height}' role='img' tabindex='0' "
        f"aria-label='{escape(f'{title}: {summary}', quote=True)}'>{frame.axes(x_name)}{drawn}{_labels(frame, lines)}"
        f"<line class='cursor' y1='{TOP}' y2='{frame.height - BOTTOM}'/></svg>"
        "<output aria-live='polite'></output></figure>\n"
    )


def moving_average(points: Sequence[tuple[float, float]], share: float = SMOOTHING) -> list[tuple[float, float]]:
    """Return the centred moving average; windows are cut at the ends. report.js has the same function."""
    half = math.floor(len(points) * share / 2 + 1e-9)
    values = [y for _, y in points]
    windows = [values[max(i - half, 0) : i + half + 1] for i in range(len(values))]
    return [(x, sum(near) / len(near)) for (x, _), near in zip(points, windows, strict=True)]


def downsample(points: Sequence[tuple[float, float]], limit: int = MAX_POINTS) -> list[tuple[float, float]]:
    """Return at most `limit` points: means of neighbouring points, and the last point unchanged."""
    if len(points) <= limit:
        return list(points)
    edges = [i * (len(points) - 1) // (limit - 1) for i in range(limit)]
    groups = [points[a:b] for a, b in pairwise(edges)]
    return [(sum(x for x, _ in g) / len(g), sum(y for _, y in g) / len(g)) for g in groups] + [points[-1]]


def ticks(low: float, high: float, about: int = 5, integer: bool = False) -> list[float]:
    """Return round numbers between the two: 1, 2 or 5 times a power of ten apart."""
    rough = (high - low) / about
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(f * power for f in (1, 2, 5, 10) if f * power >= rough * 0.999)
    step = max(step, 1.0) if integer else step
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(i * step, 12) for i in range(first, last + 1)]


def format_number(value: float) -> str:
    """Write a number in few characters."""
    if value and (abs(value) < 1e-4 or abs(value) >= 1e6):
        return f"{value:.1e}".replace(".0e", "e").replace("e-0", "e-").replace("e+0", "e")
    return f"{value:,.10g}"


def _draw(frame: Frame, line: Line, index: int) -> str:
    style = f"s{line.style % LINE_STYLES}"
    shown = moving_average(line.points) if line.smooth else line.points
    parts = [f"<path class='line raw {style}' d='{frame.path(line.points)}'/>"] if line.smooth else []
    parts.append(f"<path class='line {style}' data-line='{index}' d='{frame.path(shown)}'/>")
    if line.dots or len(line.points) == 1:
        parts += [
            f"<circle class='{style}' cx='{frame.x_at(x):.1f}' cy='{frame.y_at(y):.1f}' r='2.6'/>"
            for x, y in line.points
        ]
    return "".join(parts)


def _labels(frame: Frame, lines: Sequence[Line]) -> str:
    """Write each name at the end of its line; move names apart that would overlap."""
    drawn = [moving_average(k.points) if k.smooth else k.points for k in lines]
    ends = sorted((frame.y_at(points[-1][1]), i) for i, points in enumerate(drawn))
    gap, lowest = 13.0, frame.height - BOTTOM
    positions = list(accumulate((y for y, _ in ends), lambda above, y: max(y, above + gap)))
    positions[-1] = min(positions[-1], lowest)
    for i in reversed(range(len(positions) - 1)):  # move up what crossed the lower edge
        positions[i] = min(positions[i], positions[i + 1] - gap)
    return "".join(
        f"<text class='name s{lines[i].style % LINE_STYLES}' x='{frame.width - frame.right + 6:.0f}' y='{y + 4:.1f}'>"
        f"{escape(lines[i].name)}</text>"
        for y, (_, i) in zip(positions, ends, strict=True)
    )


def _axis_range(values: Sequence[float], from_zero: bool = False, margin: float = 0.0) -> tuple[float, float]:
    low, high = min(values), max(values)
    low = min(low, 0.0) if from_zero else low
    if high == low:
        high, low = high + (abs(high) * 0.1 or 1.0), low if from_zero else low - abs(low) * 0.1
    room = margin * (high - low)
    return low if from_zero else low - room, high + room
