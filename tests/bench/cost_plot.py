"""Draws what an event costs by the size of its run, as an SVG picture. Pure: figures in, text out."""

from __future__ import annotations

import math
from collections.abc import Mapping
from html import escape

_WIDTH, _HEIGHT = 640, 360
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 30, 60, 60
_LINE, _POINT, _INK, _GRID = "#1f6feb", "#d1580b", "#24292f", "#d0d7de"
_FEWEST_TICKS = 4


def draw_costs(curve: Mapping[int, float], others: Mapping[str, tuple[int, float]], said: str) -> str:
    """Return the picture: ``curve`` is microseconds by nodes of one run; ``others`` single points (nodes, microseconds).

    ``said`` tells below the title what it was measured with.
    """
    sizes = [*curve, *(size for size, _ in others.values())]
    step = tick_step(max([*curve.values(), *(cost for _, cost in others.values())]))
    top = step * math.ceil(max([*curve.values(), *(cost for _, cost in others.values())]) / step)
    first, last = math.log10(min(sizes)), math.log10(max(sizes))

    def x(size: int) -> float:
        share = (math.log10(size) - first) / (last - first) if last > first else 0.5
        return round(_LEFT + share * (_WIDTH - _LEFT - _RIGHT), 1)

    def y(cost: float) -> float:
        return round(_HEIGHT - _BOTTOM - cost / top * (_HEIGHT - _TOP - _BOTTOM), 1)

    parts = [
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#ffffff"/>',
        _text(_LEFT, 24, "Processor time of the scheduler for an event", size=15, anchor="start"),
        _text(_LEFT, 42, said, size=11, anchor="start"),
        _text((_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - 14, "nodes of the run", size=12),
    ]
    for tick in range(round(top / step) + 1):
        at = y(tick * step)
        parts.append(f'<line x1="{_LEFT}" y1="{at}" x2="{_WIDTH - _RIGHT}" y2="{at}" stroke="{_GRID}"/>')
        parts.append(_text(_LEFT - 8, at + 4, f"{tick * step:g} µs", size=11, anchor="end"))
    for size in sorted(set(sizes)):
        parts.append(_text(x(size), _HEIGHT - _BOTTOM + 18, f"{size:,}", size=11))
    path = " ".join(f"{x(size)},{y(cost)}" for size, cost in sorted(curve.items()))
    parts.append(f'<polyline points="{path}" fill="none" stroke="{_LINE}" stroke-width="2"/>')
    for size, cost in sorted(curve.items()):
        parts.append(f'<circle cx="{x(size)}" cy="{y(cost)}" r="4" fill="{_LINE}"/>')
        parts.append(_text(x(size), y(cost) - 10, f"{cost:.0f}", size=11))
    for name, (size, cost) in others.items():
        parts.append(f'<rect x="{x(size) - 4}" y="{y(cost) - 4}" width="8" height="8" fill="{_POINT}"/>')
        parts.append(_text(x(size) + 10, y(cost) + 16, f"{cost:.0f} ({name})", size=11, anchor="start"))
    inside = "\n".join(f"  {part}" for part in parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        f'font-family="system-ui, sans-serif">\n{inside}\n</svg>\n'
    )


def tick_step(highest: float) -> float:
    """Return the largest of 1, 2, 5, 10, 20, 50 … (and of 0.5, 0.2 …) that goes into ``highest`` often enough."""
    tens = math.floor(math.log10(highest))
    steps = (digit * 10.0**exponent for exponent in (tens, tens - 1) for digit in (5, 2, 1))
    return next(step for step in steps if highest / step >= _FEWEST_TICKS)


def _text(x: float, y: float, said: str, *, size: int, anchor: str = "middle") -> str:
    return f'<text x="{x}" y="{y}" font-size="{size}" text-anchor="{anchor}" fill="{_INK}">{escape(said)}</text>'
