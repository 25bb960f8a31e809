"""The listing of a folder, as JSON and as HTML. Pure."""

from __future__ import annotations

import html
import re
import time
from collections.abc import Sequence
from typing import Final

import msgspec

from tensorkeep.server._paths import link_to
from tensorkeep.server._tree import Entry

_PAGE: Final = """\
<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{title}</title>
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem }}
table {{ border-collapse: collapse; width: 100% }}
td {{ padding: .2rem 1rem .2rem 0; border-top: 1px solid #8884 }}
td + td {{ color: #888; white-space: nowrap }}
td:nth-child(2) {{ text-align: right }}
a {{ text-decoration: none; overflow-wrap: anywhere }}
</style>
<h1>{title}</h1>
<p>{summary}</p>
<table>
{rows}
</table>
</html>
"""
_UNITS: Final = ("bytes", "kB", "MB", "GB", "TB", "PB")

_is_shard = re.compile(r".*-[0-9]{5}-of-[0-9]{5}\.(?:safetensors|bin)").fullmatch
_is_step = re.compile(r"step-[0-9]{8,15}").fullmatch
_digits = re.compile(r"([0-9]+)")


class Listing(msgspec.Struct, frozen=True):
    """The contents of a folder.

    Attributes:
        path: Its path on the server, such as `/run/`.
        entries: Its served entries, in any order.
        kinds: Subfolder name to what the folder holds, where that is known.
    """

    path: str
    entries: Sequence[Entry]
    kinds: dict[str, str]

    def as_json(self) -> bytes:
        """Return it for programs: `names` (folders end with a slash), and `entries` with sizes and times."""
        ordered = self._ordered()
        names = [entry.name + "/" * entry.is_folder for entry in ordered]
        members = [
            {"name": name, "nbytes": None if entry.is_folder else entry.nbytes, "modified_s": int(entry.modified_s)}
            for name, entry in zip(names, ordered, strict=True)
        ]
        return msgspec.json.encode({"kind": kind_of(names), "names": names, "entries": members})

    def as_html(self) -> bytes:
        """Return it for browsers: a page of links."""
        ordered = self._ordered()
        kind = kind_of([entry.name + "/" * entry.is_folder for entry in ordered])
        n_files = sum(not entry.is_folder for entry in ordered)
        nbytes = sum(entry.nbytes for entry in ordered)
        files = f"{n_files:,} {'file' if n_files == 1 else 'files'}, {_size(nbytes)}"
        rows = [self._row(entry) for entry in ordered]
        if self.path != "/":
            rows.insert(0, '<tr><td><a href="../">../</a><td><td>')
        title, summary = html.escape(self.path), html.escape(f"{kind}: {files}" if kind else files)
        return _PAGE.format(title=title, summary=summary, rows="\n".join(rows)).encode()

    def _ordered(self) -> list[Entry]:
        """Return folders before files, with numbers in names in numeric order."""
        return sorted(self.entries, key=lambda entry: (not entry.is_folder, _natural(entry.name)))

    def _row(self, entry: Entry) -> str:
        link = html.escape(link_to(entry.name, is_folder=entry.is_folder))
        name = html.escape(entry.name + "/" * entry.is_folder)
        what = html.escape(self.kinds.get(entry.name, "")) if entry.is_folder else _size(entry.nbytes)
        return f'<tr><td><a href="{link}">{name}</a><td>{what}<td>{_date(entry.modified_s)}'


def kind_of(names: Sequence[str]) -> str | None:
    """Say what a folder holds, judging by the names in it; None if unknown."""
    n_shards = sum(_is_shard(name) is not None for name in names)
    shards = f" of {n_shards:,} {'shard' if n_shards == 1 else 'shards'}" if n_shards else ""
    if any(".safetensors.index." in name for name in names):
        return f"checkpoint{shards}"
    if any(name.endswith(".safetensors") for name in names):
        return f"checkpoint{shards} without an index" if shards else "checkpoint"
    n_steps = sum(_is_step(name.rstrip("/")) is not None for name in names if name.endswith("/"))
    if n_steps:
        return f"{n_steps:,} {'step' if n_steps == 1 else 'steps'} of a run"
    if any(name.endswith((".bin.index.json", ".bin", ".pt", ".pth", ".ckpt")) for name in names):
        return f"files of PyTorch{shards}"
    return None


def _natural(name: str) -> list[str | int]:
    parts: list[str | int] = list(_digits.split(name))
    parts[1::2] = map(int, parts[1::2])
    return parts


def _size(nbytes: int) -> str:
    value, unit = float(nbytes), 0
    while value >= 999.5 and unit + 1 < len(_UNITS):
        value, unit = value / 1000, unit + 1
    return f"{value:.3g} {_UNITS[unit]}"


def _date(seconds: float) -> str:
    try:
        return time.strftime("%Y-%m-%d %H:%M", time.gmtime(seconds))
    except (ValueError, OverflowError, OSError):
        return ""
