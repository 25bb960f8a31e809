"""The adapter that a command extracted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from tensorkeep.cli.terminal import Column, Line, columns, printable, replaced_text
from tensorkeep.texts import counted

if TYPE_CHECKING:
    from tensorkeep.merging import ExtractedLayer, ExtractedLora

_MAX_LAYERS: Final = 20

_COLUMNS: Final = (
    Column("layer"),
    Column("shape"),
    Column("rank", "right"),
    Column("change", "right"),
    Column("error", "right"),
)


class Extracted(NamedTuple):
    """An adapter that was just written, the layers with the largest errors first."""

    path: str
    extracted: ExtractedLora
    seconds: float
    replaced: tuple[str, ...]

    def lines(self, _width: int | None) -> Iterator[Line]:
        """Write the layers, and what was written."""
        layers = self._layers()
        yield from columns(_COLUMNS, list(map(_row, layers[:_MAX_LAYERS])))
        if len(layers) > _MAX_LAYERS:
            yield [(f"... and {len(layers) - _MAX_LAYERS:,} layers with smaller errors", "dim")]
        whole, n_equal = self.extracted.whole, self.extracted.n_equal
        held = f", {counted(len(whole), 'tensor')} stored whole" if whole else ""
        yield [
            ("wrote ", ""),
            (printable(self.path), "title"),
            (f": {counted(len(layers), 'layer')}{held}, {n_equal:,} unchanged, in {self.seconds:.1f} s", ""),
            (replaced_text(self.replaced), ""),
        ]

    def members(self) -> dict[str, object]:
        """Return the same for JSON."""
        return {
            "path": self.path,
            "seconds": round(self.seconds, 3),
            "replaced": self.replaced,
            "n_equal": self.extracted.n_equal,
            "whole": self.extracted.whole,
            "layers": (
                {
                    "layer": layer.name,
                    "shape": layer.shape,
                    "rank": layer.rank,
                    "norm": layer.norm,
                    "error": layer.error,
                }
                for layer in self.extracted.layers
            ),
        }

    def _layers(self) -> list[ExtractedLayer]:
        return sorted(self.extracted.layers, key=lambda layer: -layer.error)


def _row(layer: ExtractedLayer) -> list[Line]:
    texts = (layer.name, str(list(layer.shape)), str(layer.rank), f"{layer.norm:.4g}", f"{layer.error:.2%}")
    return [[(printable(text), "")] for text in texts]
