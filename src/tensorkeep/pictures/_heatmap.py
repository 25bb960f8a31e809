"""A sample as colors: blue below zero, red above, as far as 99 of 100 numbers reach. Pure."""

from __future__ import annotations

from base64 import b64encode
from typing import Final

import numpy as np
import numpy.typing as npt

from tensorkeep.markup import Markup, drawing, element
from tensorkeep.pictures._png import Color, png
from tensorkeep.sampling import Sample

_NEGATIVE: Final[Color] = (33, 102, 172)
_ZERO: Final[Color] = (247, 247, 247)
_POSITIVE: Final[Color] = (178, 24, 43)
_NAN: Final[Color] = (255, 0, 255)
_INFINITE: Final[Color] = (255, 212, 0)

_N_SHADES: Final = 126
"""Shades from zero to either end of the scale."""

_SIDE: Final = 300
"""Pixels of the longer side."""

_TEXT: Final[dict[str, str | float]] = {"fill": "currentColor", "font_size": 11, "font_family": "sans-serif"}


def heatmap_svg(sample: Sample) -> Markup:
    """Draw a sample, with the range of its colors."""
    numbers, scale = sample.matrix, sample.scale
    n_rows, n_columns = numbers.shape
    side = _SIDE / max(n_rows, n_columns)
    width, height = max(n_columns * side, 8), max(n_rows * side, 8)
    data = b64encode(png(_pixels(numbers, scale), _palette())).decode()
    total_width, total_height = max(width, _SIDE) + 16, height + 46
    image = element(
        "image",
        href=f"data:image/png;base64,{data}",
        x=8,
        y=24,
        width=f"{width:.1f}",
        height=f"{height:.1f}",
        preserveAspectRatio="none",
        style="image-rendering:pixelated",
    )
    colors = f"blue -{scale:.3g} · white 0 · red {scale:.3g}"
    if not np.isfinite(numbers).all():
        colors += " · magenta NaN · yellow Inf"
    return drawing(
        round(total_width, 1),
        round(total_height, 1),
        element("text", f"[{_index_text(sample)}]", x=8, y=14, font_weight=600, **_TEXT),
        image,
        element("text", colors, x=8, y=f"{height + 40:.1f}", **_TEXT),
    )


def _index_text(sample: Sample) -> str:
    """Write where a sample is, as one would index it."""
    return ", ".join(_part_text(part, is_cut=sample.is_cut) for part in sample.window.index)


def _part_text(part: int | slice, *, is_cut: bool) -> str:
    if isinstance(part, int):
        return str(part)
    return f":{part.stop}" if is_cut else f"::{part.step}" if part.step != 1 else ":"


def _pixels(numbers: npt.NDArray[np.float64], scale: float) -> npt.NDArray[np.uint8]:
    with np.errstate(all="ignore"):
        shades = np.round(np.clip(np.nan_to_num(numbers / scale), -1, 1) * _N_SHADES) + _N_SHADES
    shades[np.isinf(numbers)] = 2 * _N_SHADES + 1
    pixels = shades.astype(np.uint8)
    return np.where(np.isnan(numbers), np.uint8(0), pixels + np.uint8(1)).astype(np.uint8)


def _palette() -> list[Color]:
    """Return the colors: NaN, from negative through zero to positive, infinite."""
    below = [_mixed(_ZERO, _NEGATIVE, place / _N_SHADES) for place in range(_N_SHADES, 0, -1)]
    above = [_mixed(_ZERO, _POSITIVE, place / _N_SHADES) for place in range(1, _N_SHADES + 1)]
    return [_NAN, *below, _ZERO, *above, _INFINITE]


def _mixed(first: Color, second: Color, share: float) -> Color:
    red, green, blue = (round(a + (b - a) * share) for a, b in zip(first, second, strict=True))
    return red, green, blue
