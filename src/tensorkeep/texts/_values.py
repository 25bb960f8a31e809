"""Sizes, shares and shapes as people read them, and text from files made harmless. Pure."""

from __future__ import annotations

_UNITS = ("B", "kB", "MB", "GB", "TB", "PB", "EB")
_SHOWN_EXTENTS = 8


def printable(text: str) -> str:
    """Escape every character that a terminal could obey instead of showing."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _escaped(char) for char in text)


def _escaped(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")


def shortened(text: str, max_chars: int) -> str:
    """Cut a long text and append its length."""
    if len(text) <= max_chars:
        return text
    return f"{text[:max_chars]}... ({len(text):,} characters)"


def size_text(nbytes: int) -> str:
    """Write a size with three digits and a decimal unit (1 kB is 1,000 bytes)."""
    value = float(nbytes)
    for unit in _UNITS:
        if value < 999.5 or unit == _UNITS[-1]:
            break
        value /= 1000
    digits = 0 if unit == "B" or value >= 99.95 else 1 if value >= 9.995 else 2
    return f"{value:.{digits}f} {unit}"


def speed_text(nbytes: int, seconds: float) -> str:
    """Write how long something took, and how fast it was."""
    return f"{seconds:.2f} s ({size_text(int(nbytes / max(seconds, 1e-9)))}/s)"


def share_text(part: int, whole: int) -> str:
    """Write a fraction in percent."""
    if not whole:
        return ""
    percent = 100 * part / whole
    return "<0.1 %" if 0 < percent < 0.05 else f"{percent:.1f} %"


def shape_text(shape: tuple[int, ...]) -> str:
    """Write a shape as a list, without the end of an absurdly long one."""
    extents = [str(extent) for extent in shape[:_SHOWN_EXTENTS]]
    if len(shape) > _SHOWN_EXTENTS:
        extents.append(f"... {len(shape) - _SHOWN_EXTENTS:,} more")
    return f"[{', '.join(extents)}]"
