"""Files of other libraries: listed, loaded, sliced and converted, beside each format's own library and ztensor."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tensorkeep
from benchmarks import inputs, limits
from benchmarks.case import AtLeast, Case, Contender, Place
from benchmarks.foreign import FORMATS, ForeignFormat, arrays
from benchmarks.foreign_compressed import COMPRESSED
from benchmarks.foreign_models import MODELS

__all__ = ["CASES"]

_N_ROWS = 16


class _File:
    """A file of a format, in the page cache with the files beside it, and where to convert it to."""

    def __init__(self, path: Path, row_name: str) -> None:
        self.path = path
        self.row_name = row_name
        self.target = path.parent / "converted"
        self.parts = [part for part in path.parent.iterdir() if part.is_file()]
        for part in self.parts:
            inputs.read_into_cache(part)


def _made(form: ForeignFormat, n_tensors: int, shape: tuple[int, ...], folder: Path) -> _File:
    """Write a file, unless it exists."""
    home = folder / "formats" / f"{form.name}-{n_tensors}"
    done = home / "path.txt"
    if not done.exists():
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
        done.write_text(form.write(home / f"model{form.suffix}", arrays(n_tensors, shape)).name)
    return _File(home / done.read_text(), form.row_name)


def _many(form: ForeignFormat) -> Callable[[Place], _File]:
    """Declare 20,000 tensors of 2 kB."""
    return lambda place: _made(form, place.size(20_000, 50), (8, 64), place.folder)


def _large(form: ForeignFormat) -> Callable[[Place], _File]:
    """Declare 2.5 GB in 100 tensors."""
    return lambda place: _made(form, place.size(100, 5), (2048, place.size(3040, 32)), place.folder)


def _touch(tensors: Any) -> Any:
    """Read one byte of every page, so that a mapped tensor costs what its bytes cost."""
    for array in tensors.values():
        array.reshape(-1).view("u1")[::4096].max()
    return tensors


def _listed(file: _File) -> Any:
    return {name: (lazy.shape, lazy.dtype) for name, lazy in tensorkeep.open(file.path).items()}


def _load(file: _File) -> Any:
    return _touch(tensorkeep.open(file.path).load())


def _rows(file: _File) -> Any:
    with tensorkeep.open(file.path) as opened:
        return opened[file.row_name][:_N_ROWS]


def _listed_by_ztensor(file: _File) -> Any:
    import ztensor

    return {name: (tensor.shape, tensor.dtype) for name, tensor in ztensor.open(str(file.path)).items()}


def _load_by_ztensor(file: _File) -> Any:
    import ztensor.numpy

    return _touch(ztensor.numpy.load_file(str(file.path)))


def _rows_by_ztensor(file: _File) -> Any:
    import numpy as np
    import ztensor

    return np.from_dlpack(ztensor.open(str(file.path))[file.row_name])[:_N_ROWS].copy()


def _convert(file: _File) -> None:
    tensorkeep.convert(file.path, file.target, durable=False, check=False)


def _copy(file: _File) -> None:
    file.target.mkdir()
    for part in file.parts:
        limits.copy_of_file(part, file.target / part.name)


def _make_cold(file: _File) -> None:
    for part in file.parts:
        inputs.drop_from_cache(part)


def _remove(file: _File) -> None:
    if file.target.exists():
        shutil.rmtree(file.target)


def _peers(
    form: ForeignFormat, size: str, own: Callable[[Path], Any], ztensor: Callable[[_File], Any]
) -> tuple[Contender, ...]:
    """Return the own library, and ztensor where it reads the file."""
    library = Contender(form.library, lambda file: own(file.path))
    return (library, Contender("ztensor", ztensor)) if size in form.ztensor_reads else (library,)


def _target(form: ForeignFormat, work: str) -> AtLeast:
    """Return twice the speed of the own library where it loops in Python or copies, and its speed elsewhere."""
    return AtLeast(2.0 if work in form.loops else 1.0)


_NOT_SLOWER = {"ztensor": AtLeast(1.0)}


def _cases_of(form: ForeignFormat) -> tuple[Case, ...]:
    return tuple(
        case for case in _all_cases_of(form) if case.name.removeprefix(f"formats/{form.name}-") in form.works
    )


def _all_cases_of(form: ForeignFormat) -> tuple[Case, ...]:
    return (
        Case(
            name=f"formats/{form.name}-list",
            title=f"open a file of {form.name}, 20,000 F32 tensors of 2 kB, and list names, shapes and dtypes",
            prepare=_many(form),
            company=form.name,
            ours=Contender("tensorkeep", _listed),
            peers=_peers(form, "many", form.listed, _listed_by_ztensor),
            target=_target(form, "list"),
            other_targets=_NOT_SLOWER,
            rounds=5,
        ),
        Case(
            name=f"formats/{form.name}-load-many",
            title=f"load a file of {form.name}, 20,000 F32 tensors of 2 kB",
            prepare=_many(form),
            company=form.name,
            ours=Contender("tensorkeep", _load),
            peers=_peers(form, "many", lambda path: _touch(form.load(path)), _load_by_ztensor),
            target=_target(form, "load-many"),
            other_targets=_NOT_SLOWER,
            rounds=5,
        ),
        Case(
            name=f"formats/{form.name}-load-large",
            title=f"load a file of {form.name}, 2.5 GB in 100 F32 tensors, warm; every page is touched",
            prepare=_large(form),
            company=form.name,
            ours=Contender("tensorkeep", _load),
            peers=_peers(form, "large", lambda path: _touch(form.load(path)), _load_by_ztensor),
            target=_target(form, "load-large"),
            other_targets=_NOT_SLOWER,
            rounds=3,
        ),
        Case(
            name=f"formats/{form.name}-load-cold",
            title=f"load the same file of {form.name}, which is not in the page cache",
            prepare=_large(form),
            company=form.name,
            before=_make_cold,
            ours=Contender("tensorkeep", _load),
            peers=_peers(form, "large", lambda path: _touch(form.load(path)), _load_by_ztensor),
            target=AtLeast(0.9),
            rounds=3,
        ),
        Case(
            name=f"formats/{form.name}-slice",
            title=f"open the large file of {form.name} and read 16 rows of one tensor",
            prepare=_large(form),
            company=form.name,
            ours=Contender("tensorkeep", _rows),
            peers=_peers(form, "large", lambda path: form.rows(path, form.row_name, _N_ROWS), _rows_by_ztensor),
            target=_target(form, "slice"),
            other_targets=_NOT_SLOWER,
            rounds=5,
        ),
        Case(
            name=f"formats/{form.name}-convert",
            title=f"convert the large file of {form.name} to safetensors with digests",
            prepare=_large(form),
            company=form.name,
            before=_remove,
            after=_remove,
            ours=Contender("tensorkeep", _convert),
            peers=(Contender("cp", _copy),),
            target=AtLeast(0.8),
            max_extra_nbytes=150_000_000,
            rounds=3,
            remark="cp copies the same number of bytes and computes no digests. Nothing waits for the disk.",
        ),
    )


CASES = tuple(case for form in (*FORMATS, *MODELS, *COMPRESSED) for case in _cases_of(form))
