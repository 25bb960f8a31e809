"""A histogram as bars. Pure.

Axes and texts have the color of the notebook's text; the bars' color is visible on light and on dark.
"""

from __future__ import annotations

from typing import Final

from tensorkeep.markup import Markup, drawing, element
from tensorkeep.measuring import Histogram

_WIDTH: Final = 330
_HEIGHT: Final = 150
_LEFT: Final = 8
_TOP: Final = 26
_BOTTOM: Final = 20
_MAX_BARS: Final = 64
_TEXT: Final[dict[str, str | float]] = {"fill": "currentColor", "font_size": 11, "font_family": "sans-serif"}


def histogram_svg(title: str, found: Histogram) -> Markup:
    """Draw the counts between the first edge and the last, joining neighbors if there are many."""
    n_joined = -(-len(found.counts) // _MAX_BARS) or 1
    starts = range(0, len(found.counts), n_joined)
    counts = [sum(found.counts[start : start + n_joined]) for start in starts]
    edges = [*(found.edges[start] for start in starts), *found.edges[-1:]]
    floor, width = _HEIGHT - _BOTTOM, _WIDTH - 2 * _LEFT
    step = width / max(1, len(counts))
    bars = []
    for place, count in enumerate(counts):
        height = max(1.0, (floor - _TOP) * count / max(counts)) if count else 0
        what = f"{edges[place]:.4g} to {edges[place + 1]:.4g}: {count:,}"
        where = {"x": f"{_LEFT + place * step:.1f}", "y": f"{floor - height:.1f}"}
        size = {"width": f"{max(step - 0.6, 0.6):.1f}", "height": f"{height:.1f}"}
        bars.append(element("rect", element("title", what), **where, **size, fill="#12a594"))
    texts = [
        element("text", f"{title}", x=_LEFT, y=14, font_weight=600, **_TEXT),
        element("text", f"max {max(counts, default=0):,}", x=_WIDTH - _LEFT, y=14, text_anchor="end", **_TEXT),
    ]
    if counts:
        texts.append(element("text", f"{edges[0]:.3g}", x=_LEFT, y=_HEIGHT - 6, **_TEXT))
        texts.append(element("text", f"{edges[-1]:.3g}", x=_WIDTH - _LEFT, y=_HEIGHT - 6, text_anchor="end", **_TEXT))
        if edges[0] < 0 < edges[-1]:
            zero = _LEFT + width * -edges[0] / (edges[-1] - edges[0])
            if 0.2 < zero / _WIDTH < 0.8:
                texts.append(element("text", "0", x=f"{zero:.1f}", y=_HEIGHT - 6, text_anchor="middle", **_TEXT))
    axis = element("line", x1=_LEFT, x2=_WIDTH - _LEFT, y1=floor, y2=floor, stroke="currentColor", stroke_opacity=0.5)
    return drawing(_WIDTH, _HEIGHT, *bars, axis, *texts)
