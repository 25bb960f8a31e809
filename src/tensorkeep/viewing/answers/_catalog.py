"""All tensors of a checkpoint as columns, from headers alone; the page makes its tree of them. Pure."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tensorkeep.collector import PausedCollector
from tensorkeep.formats import Description, Digests
from tensorkeep.kinds import Opened
from tensorkeep.transport import without_secrets
from tensorkeep.viewing._json import number


class CatalogFile(msgspec.Struct, frozen=True):
    """A file of a checkpoint."""

    name: str
    nbytes: int
    n_tensors: int
    form: str


class DtypeTotal(msgspec.Struct, frozen=True):
    """The tensors of a dtype."""

    dtype: str
    n_tensors: int
    n_elements: int | str
    nbytes: int


class Columns(msgspec.Struct, frozen=True):
    """Tensors, each at the same place of all columns.

    Attributes:
        name: Names.
        dtype: Places in `Catalog.dtypes`.
        shape: Shapes.
        nbytes: Bytes; 0 for a tensor that is stored in another.
        offset: First bytes, counted from the beginning of the file's data; None for those in several pieces.
        file: Places in `Catalog.files`; -1 for tensors that are in none of them.
    """

    name: tuple[str, ...]
    dtype: list[int]
    shape: list[tuple[int | str, ...]]
    nbytes: list[int]
    offset: list[int | None]
    file: list[int]


class Catalog(msgspec.Struct, frozen=True):
    """All tensors of a checkpoint, and the files that hold them."""

    of: str
    path: str
    form: str
    index: str | None
    n_tensors: int
    n_elements: int | str
    nbytes: int
    file_nbytes: int
    digests: Digests
    unknown_names: int
    files: list[CatalogFile]
    totals: list[DtypeTotal]
    dtypes: list[str]
    tensors: Columns
    views: dict[str, tuple[int | None, str]]


def catalog(of: str, opened: Opened, names: tuple[str, ...]) -> Catalog:
    """List the tensors of a checkpoint."""
    with PausedCollector():
        description = opened.describe()
        file_of = _places_of_files(description, opened)
        columns, dtypes, totals = _columns(opened, names, file_of)
    digests = {file.digests for file in description.files} or {"none"}
    return Catalog(
        of=of,
        path=str(without_secrets(opened.path)),
        form=opened.format_name,
        index=description.index,
        n_tensors=len(names),
        n_elements=number(sum(int(total.n_elements) for total in totals)),
        nbytes=sum(total.nbytes for total in totals),
        file_nbytes=sum(file.file_nbytes for file in description.files),
        digests="stale" if "stale" in digests else "some" if len(digests) > 1 else next(iter(digests)),
        unknown_names=len(opened.unknowns),
        files=[CatalogFile(file.file, file.file_nbytes, len(file.entries), file.form) for file in description.files],
        totals=totals,
        dtypes=dtypes,
        tensors=columns,
        views=_views(opened, names),
    )


def _places_of_files(description: Description, opened: Opened) -> Mapping[str, int]:
    """Return the place of the file that holds each tensor, or its first piece, or what it is stored in."""
    places = {name: place for place, file in enumerate(description.files) for name in file.entries}
    for name, pieces in opened.splits.items():
        if pieces and pieces[0] in places:
            places.setdefault(name, places[pieces[0]])
    for name, alias in opened.aliases.items():
        if alias.of in places:
            places.setdefault(name, places[alias.of])
    return places


def _columns(
    opened: Opened, names: tuple[str, ...], file_of: Mapping[str, int]
) -> tuple[Columns, list[str], list[DtypeTotal]]:
    dtypes: dict[str, int] = {}
    sums: dict[str, tuple[int, int, int]] = {}
    columns = Columns(names, [], [], [], [], [])
    aliases, splits = opened.aliases, opened.splits
    for name, lazy in opened.items():
        dtype, is_stored = lazy.dtype, name not in aliases
        nbytes = lazy.nbytes if is_stored else 0
        columns.dtype.append(dtypes.setdefault(dtype, len(dtypes)))
        columns.shape.append(tuple(number(extent) for extent in lazy.shape))
        columns.nbytes.append(nbytes)
        columns.offset.append(None if name in splits else lazy.data_offsets[0])
        columns.file.append(file_of.get(name, -1))
        n, n_elements, total = sums.get(dtype, (0, 0, 0))
        sums[dtype] = n + 1, n_elements + (lazy.n_elements if is_stored else 0), total + nbytes
    totals = [DtypeTotal(dtype, n, number(n_elements), nbytes) for dtype, (n, n_elements, nbytes) in sums.items()]
    return columns, list(dtypes), sorted(totals, key=lambda each: (-each.nbytes, each.dtype))


def _views(opened: Opened, names: tuple[str, ...]) -> dict[str, tuple[int | None, str]]:
    """Return the tensors that are stored in others, by their places."""
    aliases = opened.aliases
    if not aliases:
        return {}
    places = {name: place for place, name in enumerate(names)}
    return {
        str(places[name]): (places.get(alias.of), f"= {alias.of}" if alias.is_whole else f"view of {alias.of}")
        for name, alias in aliases.items()
        if name in places
    }
