"""The plots: a bar for each case, from equal to how many times as fast, on a logarithmic axis."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape
from itertools import groupby
from typing import Literal

from benchmarks.results import CaseResult, Quartiles

__all__ = ["Theme", "group_plot", "overview_plot", "plots"]

Theme = Literal["light", "dark", "both"]

_OVERVIEW = {
    "load/torch-f32-small": "load 20,000 tensors into torch · safetensors",
    "load/large-owned": "read 2.5 GB into its own memory · safetensors",
    "save/many": "save 20,000 tensors · safetensors",
    "save/tmpfs": "save 1.3 GB, limited by the copy · safetensors",
    "checkpoint/save-new": "save 2.5 GB in shards · huggingface_hub",
    "background/durable": "save_async of 1 GB returns · save",
    "pickles/load-many": "load a torch.save file, 80,000 tensors · torch",
    "pickles/convert-checked": "convert 2.5 GB of torch.save, checked · torch",
    "formats/gguf-list": "list a GGUF file · gguf",
    "formats/hdf5-load-large": "load 2.5 GB of HDF5, mapped · h5py",
    "trainers/lightning-save": "save a Lightning checkpoint · Lightning",
    "distributed/save-rows": "save from 4 ranks by rows · DCP",
    "distributed/load-columns": "load into 4 ranks by columns · DCP",
    "trainers/transformers-save": "save a transformers checkpoint · transformers",
    "formats/paddle-load-many": "load 20,000 arrays of Paddle · paddle",
}
"""What README shows, and whom it is compared with: wins and losses alike."""

_FONT = """font-family="system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif" font-size="13\""""
_WIDTH, _MARGIN, _TOP, _BOTTOM = 760, 14, 30, 26
_COLOURS = {
    "light": {"text": "#1f2933", "quiet": "#5b6672", "line": "#d4dae1", "fast": "#00857a", "slow": "#c2570c"},
    "dark": {"text": "#e3e8ee", "quiet": "#9aa6b2", "line": "#3a434d", "fast": "#3dc2b4", "slow": "#f0944d"},
}


def plots(results: Sequence[CaseResult]) -> dict[str, str]:
    """Draw all plots: the path of each, below the folder of the page's pictures, and its SVG."""
    files = {f"benchmarks-{theme}.svg": overview_plot(results, theme) for theme in ("light", "dark")}
    groups = groupby(results, key=lambda result: result.case.group)
    return files | {f"benchmarks/{group}.svg": group_plot(list(members)) for group, members in groups}


def overview_plot(results: Sequence[CaseResult], theme: Literal["light", "dark"]) -> str:
    """Draw a few cases, sorted, each with a short label beside its bar."""
    by_name = {result.case.name: result for result in results}
    chosen = [(label, _ratio(by_name[name])) for name, label in _OVERVIEW.items() if name in by_name]
    chosen.sort(key=lambda row: -row[1].middle)
    return _plot(chosen, label_width=330, row_height=24, theme=theme)


def group_plot(results: Sequence[CaseResult]) -> str:
    """Draw all cases of a group, each with its title and peer above its bar, in the reader's light or dark."""
    rows = [
        (f"{result.case.title.replace('`', '')} · {result.case.peers[0].name.replace('`', '')}", _ratio(result))
        for result in results
    ]
    return _plot(rows, label_width=0, row_height=42, theme="both")


def _ratio(result: CaseResult) -> Quartiles:
    return result.ratio_to(result.case.peers[0])


def _plot(rows: list[tuple[str, Quartiles]], *, label_width: int, row_height: int, theme: Theme) -> str:
    left, right = _MARGIN + label_width, _WIDTH - _MARGIN - 60
    axis = _Axis(left, right, [ratio for _, quartiles in rows for ratio in (quartiles.low, quartiles.high)])
    height = _TOP + row_height * len(rows) + _BOTTOM
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img" {_FONT}>',
        f"<title>How many times as fast as others: {escape(_in_words(rows))}</title>",
        f"<style>{_style(theme)}</style>",
        *_grid(axis, height),
    ]
    for number, (label, ratio) in enumerate(rows):
        parts.extend(_row(label, ratio, axis, _TOP + row_height * number, label_width, row_height))
    return "\n".join([*parts, "</svg>", ""])


class _Axis:
    """Where a ratio is, in pixels."""

    def __init__(self, left: float, right: float, ratios: list[float]) -> None:
        self._left, self._right = left, right
        self._low = math.log10(min([0.5, *ratios]))
        self._high = math.log10(max([4.0, *ratios]))

    def at(self, ratio: float) -> float:
        share = (math.log10(ratio) - self._low) / (self._high - self._low)
        return round(self._left + share * (self._right - self._left), 1)

    def ticks(self) -> Iterator[float]:
        every = (1, 2, 5) if self._high - self._low < 2 else (1,)
        for exponent in range(math.floor(self._low), math.ceil(self._high) + 1):
            for digit in every:
                tick = digit * 10.0**exponent
                if self._low - 1e-9 <= math.log10(tick) <= self._high + 1e-9:
                    yield tick


def _style(theme: Theme) -> str:
    def rules(colours: dict[str, str]) -> str:
        text = f".t{{fill:{colours['text']}}}.q{{fill:{colours['quiet']}}}.l{{stroke:{colours['line']}}}"
        bars = f".f{{fill:{colours['fast']}}}.s{{fill:{colours['slow']}}}.w{{stroke:{colours['text']}}}"
        return text + bars

    if theme == "both":
        return f"{rules(_COLOURS['light'])}@media(prefers-color-scheme:dark){{{rules(_COLOURS['dark'])}}}"
    return rules(_COLOURS[theme])


def _grid(axis: _Axis, height: int) -> Iterator[str]:
    bottom = height - _BOTTOM
    for tick in axis.ticks():
        x, width = axis.at(tick), 2 if tick == 1 else 1
        yield f'<line class="l" x1="{x}" y1="{_TOP - 8}" x2="{x}" y2="{bottom}" stroke-width="{width}"/>'
        yield f'<text class="q" x="{x}" y="{bottom + 16}" text-anchor="middle" font-size="11">{tick:g}x</text>'
    one = axis.at(1)
    yield f'<text class="q" x="{one + 6}" y="14" font-size="11">tensorkeep is faster →</text>'
    yield f'<text class="q" x="{one - 6}" y="14" text-anchor="end" font-size="11">← slower</text>'


def _row(label: str, ratio: Quartiles, axis: _Axis, top: float, label_width: int, row_height: int) -> Iterator[str]:
    middle = top + (row_height / 2 if label_width else row_height - 11)
    x, one = axis.at(ratio.middle), axis.at(1)
    colour = "f" if ratio.middle >= 1 else "s"
    if label_width:
        yield f'<text class="t" x="{_MARGIN}" y="{middle + 4:g}">{escape(label)}</text>'
    else:
        yield f'<text class="t" x="{_MARGIN}" y="{middle - 13:g}">{escape(label)}</text>'
    bar = f'x="{min(x, one)}" y="{middle - 6:g}" width="{max(abs(x - one), 1):.1f}" height="12" rx="2"'
    yield f'<rect class="{colour}" {bar}/>'
    low, high = axis.at(ratio.low), axis.at(ratio.high)
    yield f'<line class="w" x1="{low}" y1="{middle:g}" x2="{high}" y2="{middle:g}" stroke-width="1.5"/>'
    end = max(x, high, one) + 7
    yield f'<text class="{colour}" x="{end:.1f}" y="{middle + 4:g}" font-weight="600">{_times(ratio.middle)}</text>'


def _in_words(rows: list[tuple[str, Quartiles]]) -> str:
    return "; ".join(f"{label}: {_times(ratio.middle)}" for label, ratio in rows)


def _times(ratio: float) -> str:
    return f"{ratio:,.0f}x" if ratio >= 9.95 else f"{ratio:.1f}x" if ratio >= 0.95 else f"{ratio:.2f}x"
