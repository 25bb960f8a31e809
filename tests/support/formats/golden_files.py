"""The files in golden/: what the reference (safetensors 0.8.0) wrote for these tensors. They are never rewritten."""

from __future__ import annotations

from tests.support import ROOT
from tests.support.formats.reference_files import WRITABLE, Plain

__all__ = ["FOLDER", "GOLDEN"]

FOLDER = ROOT / "tests" / "formats" / "safetensors" / "golden"

GOLDEN: dict[str, tuple[dict[str, Plain], dict[str, str] | None]] = {
    "every_dtype": ({f"t{place}": Plain.counting(name, 2, 4) for place, name in enumerate(WRITABLE)}, None),
    "no_tensors": ({}, None),
    "metadata": ({"w": Plain.counting("F32", 3)}, {"format": "pt"}),
    "metadata_alone": ({}, {'a "key"': "line\nü\u2028"}),
    "shapes": (
        {
            "0-d": Plain.counting("F64"),
            "empty": Plain.counting("F32", 0),
            "empty inside": Plain.counting("I16", 2, 0, 3),
            "many dimensions": Plain.counting("BF16", *[1] * 9, 2),
            "odd": Plain.counting("U8", 3),
        },
        None,
    ),
    "names": (
        {
            name: Plain.counting("U8", 1)
            for name in (
                "",
                " ",
                "a",
                "B",
                "a.b",
                "é",
                "\U0001f600",
                '"',
                "\\",
                "/",
                "\n",
                "\x00",
                "\x1f",
                "\x7f",
                "\u2028",
            )
        },
        None,
    ),
}
"""Name of a file to its tensors and metadata."""
