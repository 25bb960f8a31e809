"""`show`: what a tensor or a checkpoint looks like, as a picture for notebooks."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from html import escape
from typing import Final

from tensorkeep.checkpoint import open_checkpoint
from tensorkeep.encryption import KeyLike
from tensorkeep.errors import LimitError
from tensorkeep.markup import Markup, element, page
from tensorkeep.measuring import TensorStatistics, statistics
from tensorkeep.parallel import Progress
from tensorkeep.pictures._heatmap import heatmap_svg
from tensorkeep.pictures._histogram import histogram_svg
from tensorkeep.pictures._treemap import treemap_svg
from tensorkeep.sampling import plane_of, sample
from tensorkeep.tensors import LazyTensor, LazyTensors, tensors_html
from tensorkeep.texts import counted, shape_text, size_text
from tensorkeep.transport import local_path

_EXTENT: Final = 128
"""Most rows and columns of a heatmap."""


class Picture:
    """HTML without scripts, which a notebook shows; `save` writes it to a file, and its text is for terminals.

    Attributes:
        html: The HTML.
        text: The same in a few lines of text, as far as it has one.
    """

    def __init__(self, html: str, text: str) -> None:
        self.html = html
        self.text = text

    def _repr_html_(self) -> str:
        return self.html

    def __repr__(self) -> str:
        return self.text

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a page for a browser, light or dark as the system is.

        Args:
            path: The file, such as `"weight.html"`; one that exists is replaced.

        Raises:
            UnsupportedError: If the path is a URL.
        """
        head = '<!doctype html><meta charset="utf-8"><meta name="color-scheme" content="light dark">'
        title = f"<title>{escape(self.text.partition(os.linesep)[0])}</title>"
        with open(local_path(path), "w", encoding="utf-8") as file:
            file.write(f'{head}{title}<body style="font-family:sans-serif">{self.html}</body>')


def show(
    what: str | os.PathLike[str] | LazyTensor | TensorStatistics | Mapping[str, LazyTensor],
    *,
    progress: Progress | None = None,
    key: KeyLike | Sequence[KeyLike] | None = None,
) -> Picture:
    """Return what a tensor or a checkpoint looks like, as a picture for notebooks.

    A tensor is read as a whole, by `statistics`: numbers, a histogram by value and one by magnitude, and a heatmap of
    up to 128 x 128 of its elements. Of a checkpoint, only names and sizes are used: a map of its modules, and the
    list of tensors.

        tensorkeep.show(file["lm_head.weight"])
        tensorkeep.show("my-model").save("my-model.html")

    Args:
        what: A lazy tensor, its statistics, an open file or checkpoint, a view of one, or a path.
        progress: Called with the bytes of a tensor counted so far and the total. If it raises, the work stops.
        key: The key of an encrypted checkpoint at a path; see `open`.

    Returns:
        The picture, a page of less than 200 kB.

    Raises:
        SourceMissingError: If there is nothing at a path, or a shard is missing.
        EncryptedError: If it is encrypted, and the key is missing or another one.
        IntegrityError: If a checkpoint at a path is incomplete or damaged.
        FormatError: If a file cannot be parsed.
        LimitError: If a header, index or pickle exceeds a bound.
        UnsupportedError: If a path cannot be opened.
        DtypeError: If a tensor cannot be read as numbers.
        TransportError: If the bytes cannot be read.
    """
    if isinstance(what, TensorStatistics):
        return _measured(what, [])
    if isinstance(what, LazyTensor):
        found = statistics(what, progress=progress)
        return _measured(found, list(_heatmaps(what)))
    if isinstance(what, str | os.PathLike):
        with open_checkpoint(what, key=key) as opened:
            opened.require_names()
            return show(opened)
    return _tensors(what)


def _heatmaps(lazy: LazyTensor) -> Iterator[Markup]:
    """Draw the first plane, if there is one that can be read at once."""
    if lazy.n_elements and lazy.ndim:
        with suppress(LimitError):
            yield heatmap_svg(sample([lazy], plane_of(lazy.shape), _EXTENT, _EXTENT))


def _tensors(tensors: Mapping[str, LazyTensor]) -> Picture:
    sizes = {name: lazy.nbytes for name, lazy in tensors.items()}
    what = f"{counted(len(sizes), 'tensor')}, {size_text(sum(sizes.values()))}"
    if isinstance(tensors, LazyTensors):
        listing = Markup(tensors._repr_html_())
        text = f"{tensors.path}: {what}"
    else:
        listing = tensors_html("tensors", [], tensors, {})
        text = what
    return Picture(element("div", listing, treemap_svg(sizes)), text)


def _measured(found: TensorStatistics, more: list[Markup]) -> Picture:
    facts = [found.dtype, shape_text(found.shape), counted(found.n_elements, "element")]
    numbers = {
        "min": found.min,
        "max": found.max,
        "mean": found.mean,
        "std": found.std,
        "norm": found.norm,
        "distinct": found.n_distinct,
    }
    texts = [f"{name} {_text(value)}" for name, value in numbers.items() if value is not None]
    texts.append(f"{found.n_zeros:,} zeros")
    bad = [f"{n:,} {what}" for n, what in ((found.n_nan, "NaN"), (found.n_inf, "Inf")) if n]
    line = element("div", " · ".join(texts), style="font-variant-numeric:tabular-nums")
    warning = [element("strong", "⚠ " + ", ".join(bad), style="color:#d9480f")] if bad else []
    histograms = {"values": found.histogram, "magnitudes, by powers of two": found.magnitudes}
    charts = [histogram_svg(title, each) for title, each in histograms.items() if each.counts]
    beside = element("div", *charts, *more, style="display:flex;flex-wrap:wrap;gap:12px;align-items:flex-start")
    html = page(found.name or '""', facts, line, *warning, beside)
    return Picture(html, "\n".join([f"{found.name!r}: {', '.join(facts)}", ", ".join(texts + bad)]))


def _text(number: float) -> str:
    return f"{number:,}" if isinstance(number, int) else f"{number:.5g}"
