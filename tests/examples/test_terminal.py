"""The terminal that README shows prints what tensorkeep prints today."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree as ET

from examples.terminal import PICTURE, draw, run

_MEASURED = re.compile(r"[\d.]+ (?:s|ms)\b|[\d.]+ [kMG]?B/s")


def description_of(svg: str) -> list[str]:
    """Return the text of a picture; what was measured is left out."""
    description = ET.fromstring(svg).findtext("{http://www.w3.org/2000/svg}desc")
    return [_MEASURED.sub("?", line).rstrip() for line in (description or "").splitlines()]


def test_the_picture_is_current(tmp_path: Path) -> None:
    drawn = draw(run(tmp_path, colour=False))

    assert description_of(PICTURE.read_text(encoding="utf-8")) == description_of(drawn), "run make pictures"
