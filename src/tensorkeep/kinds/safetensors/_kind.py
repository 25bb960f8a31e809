"""The kind of safetensors files, alone or with an index. It claims whatever no other kind does."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack

from tensorkeep.errors import HeaderError
from tensorkeep.kinds.base import Checks, Files, Kind, Opened, OpenOptions, Place
from tensorkeep.kinds.safetensors._checkpoint import open_safetensors
from tensorkeep.kinds.safetensors._duplicate import without_duplicate
from tensorkeep.kinds.safetensors._file import file_over
from tensorkeep.kinds.safetensors._verify import check_files
from tensorkeep.layout import index_names, locate, weights_name
from tensorkeep.tensors import ENGINES
from tensorkeep.transport import exists, join, split

_SUFFIX = ".safetensors"
_MODEL, _WEIGHTS = ".xml", ".bin"


def _find(place: Place) -> Place:
    """Claim every place: if there is nothing, opening it raises an error that says what is missing."""
    return place


def _open(place: Place, options: OpenOptions) -> Opened:
    if place.path is not None and (place.is_directory or place.path.endswith((_SUFFIX, ".json"))):
        return open_safetensors(place.path, options)
    try:
        return file_over(place.source, options)
    except HeaderError as error:
        model = _model_beside(place)
        raise error if model is None else error.with_fields(hint=f"Open {model}, whose weights it may hold") from None


def _model_beside(place: Place) -> str | None:
    """Return the name of a model beside a file of weights, as OpenVINO writes them, if there is one."""
    if place.path is None or not place.is_named(_WEIGHTS):
        return None
    directory, name = split(place.path)
    model = name[: -len(_WEIGHTS)] + _MODEL
    return model if exists(join(directory, model)) else None


def _check(place: Place, options: OpenOptions, names: Iterable[str] | None, opened: ExitStack) -> Checks:
    if place.path is None:
        return opened.enter_context(file_over(place.source, options)).checks(names)
    return check_files(place.path, options, names, opened)


def _files(place: Place) -> Files:
    path = place.path or ""
    location = locate(path, place.variant)
    if location is None:
        directory, name = split(path)
        return Files(directory, name, (name,))
    location = without_duplicate(location, OpenOptions(as_stored=True))
    names = () if location.index else (location.name,)
    entries = (weights_name(location.stem), *index_names(location.stem))
    return Files(location.directory, location.stem, names, location.index, entries, suffixes=(_SUFFIX,))


SAFETENSORS = Kind(
    "safetensors files",
    _find,
    _open,
    check=_check,
    files=_files,
    suffixes=(_SUFFIX,),
    engines=ENGINES,
    verifies_reads=True,
    proves_reads=True,
    decrypts=True,
)
