"""What a conversion is made of: checkpoints of any kind, opened, and all that they hold beside tensors."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from typing import Final

from tensorkeep.checkpoint import Access, Checkpoint, PickleSet, open_pickled, open_safetensors
from tensorkeep.checkpoint.rewriting import taken, together
from tensorkeep.conversion._archive_sums import Summed, summed_storages
from tensorkeep.conversion._holdings import Holdings
from tensorkeep.conversion._ties import StoredView, Ties, ties_of, views_in
from tensorkeep.errors import UnsafeError, UnsupportedError
from tensorkeep.formats.pickles import Dangerous
from tensorkeep.pickled import PickleFile, open_pickle
from tensorkeep.tensors import LazyTensors, Selector, TensorFile, TensorView, counted

__all__ = ["Sources"]

_SHOWN: Final = 5
_HINT: Final = (
    "Nothing was run. See what it is with `tensorkeep scan`;"
    " drop_unknown=True (--drop-unknown) takes the tensors and leaves it out"
)


class Sources:
    """Checkpoints that are to be written as one.

    Args:
        paths: Files, indexes and directories.
        variant: Which checkpoint of a directory.
        files: Closes what is opened.
        drop_unknown: Whether files are taken that hold more than tensors and data.

    Attributes:
        holdings: What pickles hold beside tensors.
        left_out: Dotted name to the class or function of each object that is not known to be data.

    Raises:
        UnsafeError: If a pickle names what could only do harm, unless `drop_unknown`.
        TensorkeepError: If something cannot be opened.
    """

    def __init__(self, paths: Sequence[str], variant: str | None, files: ExitStack, *, drop_unknown: bool) -> None:
        """Open all of them; see the class."""
        self._drop_unknown = drop_unknown
        self._dangerous: Dangerous = "record" if drop_unknown else "refuse"
        self._opened = [(path, self._open(path, variant, files)) for path in paths]
        self._views: dict[str, StoredView] = {}
        self.holdings = Holdings()
        self.left_out: dict[str, str] = {}
        for prefix, file in self._pickles():
            self._views |= {prefix + name: view for name, view in views_in(file).items()}
            self.holdings.walk(file.document.value, prefix.removesuffix("."), {prefix + name for name in file})
            self.left_out |= {prefix + name: unknown.qualified_name for name, unknown in file.unknowns.items()}
        self._tensors = together([_unmapped(source, files, self._dangerous) for _, source in self._opened])

    def _open(self, path: str, variant: str | None, files: ExitStack) -> LazyTensors:
        variant = variant if os.path.isdir(path) else None
        try:
            found = open_pickled(path, variant=variant, dangerous=self._dangerous)
        except UnsafeError as error:
            raise UnsafeError(**error.fields() | {"hint": _HINT}) from None
        source = open_safetensors(path, Access(), variant=variant) if found is None else found
        files.callback(source.close)
        return source

    def _pickles(self) -> Iterator[tuple[str, PickleFile]]:
        """Give each file of pickles, with what the names of its tensors begin with."""
        for _, source in self._opened:
            if isinstance(source, PickleFile):
                yield "", source
            elif isinstance(source, PickleSet):
                yield from source.prefixed()

    @property
    def checkpoints(self) -> list[tuple[str, Checkpoint | TensorFile]]:
        """Path that was given, and what was opened there, of all sources that are safetensors files."""
        return [(path, source) for path, source in self._opened if isinstance(source, Checkpoint | TensorFile)]

    @property
    def files(self) -> list[str]:
        """Paths of the files that say what the sources are."""
        paths = [source.path for _, source in self._opened if os.path.isfile(source.path)]
        return list(dict.fromkeys([*paths, *(file.path for _, file in self._pickles())]))

    def wanted(
        self, select: Selector | Iterable[Selector] | None, drop: Selector | Iterable[Selector] | None
    ) -> LazyTensors:
        """Return the tensors that are wanted.

        Args:
            select: What to take; all if None.
            drop: What to leave out of these.

        Raises:
            UnsafeError: If an object that is not known to be data is among them, unless `drop_unknown`.
            TensorNotFoundError: If no tensor is selected or left, or nothing is dropped.
            UnsupportedError: If there are no tensors, or a tensor without data is among them.
        """
        if not len(self._tensors):
            raise UnsupportedError("there are no tensors to convert", path=self._path)
        tensors, others = taken(self._tensors, select, drop, [*self.left_out, *self.holdings.empty])
        if not self._drop_unknown:
            self._refuse_unknown([name for name in self.left_out if name in others])
        self._refuse_empty([name for name in self.holdings.empty if name in others])
        return tensors

    @property
    def _path(self) -> str:
        return ", ".join(path for path, _ in self._opened)

    def _refuse_unknown(self, names: list[str]) -> None:
        if names:
            raise UnsafeError(
                f"{counted(len(names), 'object')} not known to be data",
                path=self._path,
                found=_listed([
                    f"{self.left_out[name]} at `{name}`" if name else self.left_out[name] for name in names
                ]),
                hint=_HINT,
            )

    def _refuse_empty(self, names: list[str]) -> None:
        if names:
            raise UnsupportedError(
                f"{counted(len(names), 'tensor')} without data, saved from the device meta",
                path=self._path,
                found=_listed([f"`{name}`" for name in names]),
                hint="Leave them out with drop= (--drop)",
            )

    def ties(self, wanted: LazyTensors, new: LazyTensors) -> Ties:
        """Find out which tensors share memory.

        Args:
            wanted: The tensors that are wanted.
            new: The same in the same order, under the names that they will have.
        """
        return ties_of((name, self._views.get(old)) for old, name in zip(wanted, new, strict=True))

    def sums(self, wanted: LazyTensors) -> list[Summed]:
        """Return the storages of tensors that have a sum in their archive.

        Args:
            wanted: The tensors.

        Raises:
            TransportError: If an archive cannot be read.
        """
        return [
            summed
            for prefix, file in self._pickles()
            for summed in summed_storages(file, [name for name in file if prefix + name in wanted])
        ]


def _unmapped(source: LazyTensors, files: ExitStack, dangerous: Dangerous) -> LazyTensors:
    """Return the tensors of a source, of which those that are gathered from here and there are read.

    Gathered from a mapping, they would leave all of a file in this process's memory.
    """
    if isinstance(source, PickleSet):
        parts = {
            prefix + name: lazy
            for prefix, file in source.prefixed()
            for name, lazy in _unmapped(file, files, dangerous).items()
        }
        return TensorView(parts, path=source.path)
    if not isinstance(source, PickleFile) or all(lazy.source is not None for lazy in source.values()):
        return source
    again = open_pickle(source.path, backend="pread", dangerous=dangerous)
    files.callback(again.close)
    return TensorView(
        {name: lazy if lazy.source is not None else again[name] for name, lazy in source.items()}, path=source.path
    )


def _listed(texts: list[str]) -> str:
    return ", ".join(texts[:_SHOWN]) + (f" and {len(texts) - _SHOWN:,} more" if len(texts) > _SHOWN else "")
