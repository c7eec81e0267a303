"""Charts as inline SVG: lines, axes and direct labels, coloured by the page's style so that they follow its theme.

A chart can be read without the script; with it, a pointer or the arrow keys show values. Nothing is told by colour
alone: each line has its own dashes and its name at its end.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise

WIDTH, HEIGHT = 420, 240
LEFT, TOP, BOTTOM = 48, 12, 34
LETTER = 6.9  # pixels that a letter of a label takes, about
STYLES = 7  # colours and dashes that style.css knows
MOST_POINTS = 600  # of a line: more than a screen can show
SMOOTHING = 0.05  # the share of a line over which it is averaged, until the reader chooses


@dataclass(frozen=True)
class Line:
    name: str  # stands at its end
    points: Sequence[tuple[float, float]]
    style: int = 0
    smooth: bool = False
    dots: bool = False


@dataclass(frozen=True)
class Frame:
    """Where values lie in the drawing."""

    x: tuple[float, float]
    y: tuple[float, float]
    right: float  # room for what stands beside the lines
    width: float = WIDTH
    height: float = HEIGHT

    def across(self, x: float) -> float:
        low, high = self.x
        return LEFT + (x - low) / (high - low) * (self.width - LEFT - self.right)

    def down(self, y: float) -> float:
        low, high = self.y
        return self.height - BOTTOM - (y - low) / (high - low) * (self.height - TOP - BOTTOM)

    def path(self, points: Sequence[tuple[float, float]]) -> str:
        return "M" + "L".join(f"{self.across(x):.1f},{self.down(y):.1f}" for x, y in points)

    def axes(self, x_name: str, whole: bool = False) -> str:
        """Grid and numbers; the name of the horizontal axis below."""
        left, right, bottom = LEFT, self.width - self.right, self.height - BOTTOM
        parts = []
        for value in ticks(*self.y):
            y = self.down(value)
            parts.append(f"<line x1='{left}' x2='{right}' y1='{y:.1f}' y2='{y:.1f}'/>")
            parts.append(f"<text x='{left - 6}' y='{y + 4:.1f}' text-anchor='end'>{number(value)}</text>")
        for value in ticks(*self.x, about=6, whole=whole):
            x = self.across(value)
            parts.append(f"<line class='tick' x1='{x:.1f}' x2='{x:.1f}' y1='{bottom}' y2='{bottom + 4}'/>")
            parts.append(f"<text x='{x:.1f}' y='{bottom + 16}' text-anchor='middle'>{number(value)}</text>")
        middle = (left + right) / 2
        parts.append(f"<text x='{middle:.0f}' y='{self.height - 4}' text-anchor='middle'>{escape(x_name)}</text>")
        return f"<g class='axes'>{''.join(parts)}</g>"


def chart(title: str, lines: Sequence[Line], x_name: str = "epoch", from_zero: bool = False) -> str:
    """A figure; an empty one says so."""
    lines = [Line(k.name, thin(k.points), k.style, k.smooth, k.dots) for k in lines if k.points]
    if not lines:
        return f"<figure class='chart'><h3>{escape(title)}</h3><p>Nothing is recorded yet.</p></figure>\n"
    every = [point for k in lines for point in k.points]
    frame = Frame(
        x=_spread([x for x, _ in every], from_zero=x_name == "epoch"),
        y=_spread([y for _, y in every], from_zero, margin=0.05),
        right=max(12.0, 10 + LETTER * max(len(k.name) for k in lines)),
    )
    drawn = "".join(_draw(frame, k, i) for i, k in enumerate(lines))
    data = {
        "x": frame.x, "y": frame.y, "left": LEFT, "right": frame.width - frame.right, "top": TOP,
        "bottom": frame.height - BOTTOM, "axis": x_name,
        "lines": [
            {"name": k.name or title, "smooth": k.smooth, "points": [_round(p) for p in k.points]} for k in lines
        ],
    }  # fmt: skip
    words = "; ".join(_in_words(k) for k in lines)
    return (
        f"<figure class='chart' data-chart='{escape(json.dumps(data), quote=True)}'><h3>{escape(title)}</h3>"
        f"<svg viewBox='0 0 {frame.width} {frame.height}' role='img' tabindex='0' "
        f"aria-label='{escape(f'{title}: {words}', quote=True)}'>{frame.axes(x_name)}{drawn}{_labels(frame, lines)}"
        f"<line class='cursor' y1='{TOP}' y2='{frame.height - BOTTOM}'/></svg>"
        "<output aria-live='polite'></output></figure>\n"
    )


def smoothed(points: Sequence[tuple[float, float]], share: float = SMOOTHING) -> list[tuple[float, float]]:
    """A centred mean that uses what there is at the ends; report.js does the same."""
    half = math.floor(len(points) * share / 2 + 1e-9)
    found = []
    for i, (x, _) in enumerate(points):
        near = [y for _, y in points[max(i - half, 0) : i + half + 1]]
        found.append((x, sum(near) / len(near)))
    return found


def thin(points: Sequence[tuple[float, float]], most: int = MOST_POINTS) -> list[tuple[float, float]]:
    """No more than so many, each the mean of its neighbourhood; the last one is kept as it is."""
    if len(points) <= most:
        return list(points)
    edges = [i * (len(points) - 1) // (most - 1) for i in range(most)]
    groups = [points[a:b] for a, b in pairwise(edges)]
    return [(sum(x for x, _ in g) / len(g), sum(y for _, y in g) / len(g)) for g in groups] + [points[-1]]


def ticks(low: float, high: float, about: int = 5, whole: bool = False) -> list[float]:
    """Round numbers between the two: 1, 2 or 5 times a power of ten apart, and whole if they have to be."""
    rough = (high - low) / about
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(f * power for f in (1, 2, 5, 10) if f * power >= rough * 0.999)
    step = max(step, 1.0) if whole else step
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(i * step, 12) for i in range(first, last + 1)]


def number(value: float) -> str:
    """As short as it can be read."""
    if value and (abs(value) < 1e-4 or abs(value) >= 1e6):
        return f"{value:.1e}".replace(".0e", "e").replace("e-0", "e-").replace("e+0", "e")
    return f"{value:,.10g}"


def _draw(frame: Frame, line: Line, index: int) -> str:
    style = f"s{line.style % STYLES}"
    shown = smoothed(line.points) if line.smooth else line.points
    parts = [f"<path class='line raw {style}' d='{frame.path(line.points)}'/>"] if line.smooth else []
    parts.append(f"<path class='line {style}' data-line='{index}' d='{frame.path(shown)}'/>")
    if line.dots or len(line.points) == 1:
        parts += [
            f"<circle class='{style}' cx='{frame.across(x):.1f}' cy='{frame.down(y):.1f}' r='2.6'/>"
            for x, y in line.points
        ]
    return "".join(parts)


def _labels(frame: Frame, lines: Sequence[Line]) -> str:
    """Names beside the ends of the lines, moved apart where they would meet."""
    ends = sorted((frame.down((smoothed(k.points) if k.smooth else k.points)[-1][1]), i) for i, k in enumerate(lines))
    gap, lowest = 13.0, frame.height - BOTTOM
    places: list[float] = []
    for y, _ in ends:
        places.append(max(y, places[-1] + gap) if places else y)
    over = max(places[-1] - lowest, 0.0)
    for i in reversed(range(len(places))):  # push back up what fell off the lower edge
        places[i] = min(places[i], lowest if over and i == len(places) - 1 else places[i])
        if i + 1 < len(places):
            places[i] = min(places[i], places[i + 1] - gap)
    return "".join(
        f"<text class='name s{lines[i].style % STYLES}' x='{frame.width - frame.right + 6:.0f}' y='{y + 4:.1f}'>"
        f"{escape(lines[i].name)}</text>"
        for y, (_, i) in zip(places, ends, strict=True)
    )


def _spread(values: Sequence[float], from_zero: bool = False, margin: float = 0.0) -> tuple[float, float]:
    low, high = min(values), max(values)
    low = min(low, 0.0) if from_zero else low
    if high == low:
        high, low = high + (abs(high) * 0.1 or 1.0), low if from_zero else low - abs(low) * 0.1
    room = margin * (high - low)
    return low if from_zero else low - room, high + room


def _round(point: tuple[float, float]) -> list[float]:
    return [float(f"{v:.6g}") for v in point]


def _in_words(line: Line) -> str:
    (_, first), (_, last) = line.points[0], line.points[-1]
    return f"{line.name or 'it'} goes from {first:.4g} to {last:.4g}"
