"""Paddle's parameters for inference (`.pdiparams`), with their names from the program beside them."""

from __future__ import annotations

from typing import Final

import msgspec

from tensorkeep.errors import FormatError, IntegrityError, LimitError, RefusedError, UnsupportedError
from tensorkeep.formats import FileContents
from tensorkeep.formats.paddle import (
    Shapes,
    is_parameters,
    parse_json_program,
    parse_parameters,
    parse_program,
    structured_names,
)
from tensorkeep.formats.pickles import read_pickle
from tensorkeep.kinds.base import Files, FlatFile, Kind, OpenOptions, Place
from tensorkeep.limits import MAX_INDEX_NBYTES
from tensorkeep.texts import listed
from tensorkeep.transport import ByteRange, exists, join, open_source, split

_NAME: Final = "a file of PaddlePaddle parameters"
_PARAMETERS: Final = ".pdiparams"
_INFO: Final = ".pdiparams.info"
_PROGRAM: Final = ".pdmodel"
_PROGRAMS: Final = (".json", _PROGRAM)


def _find(place: Place) -> Place | None:
    if place.is_directory:
        names = [name for name in place.names if name.endswith(_PARAMETERS)]
        if len(names) > 1:
            raise UnsupportedError(
                "several files of parameters in the directory",
                path=place.path,
                found=listed(names),
                hint="Open one of them by its own path",
            )
        return Place(join(place.path or "", names[0]), backend=place.backend) if names else None
    if place.path is not None and place.is_named(_PROGRAM):
        return Place(_beside(place.path, _PROGRAM, _PARAMETERS), backend=place.backend)
    return place if place.is_named(_PARAMETERS) or is_parameters(place.source) else None


def _beside(path: str, suffix: str, other: str) -> str:
    """Return the path with another suffix, which keeps the options of a URL."""
    directory, name = split(path)
    return join(directory, name[: -len(suffix)] + other)


def _open(place: Place, options: OpenOptions) -> FlatFile:
    source = place.source
    try:
        contents = parse_parameters(source)
        contents.check_ranges(source)
    except (FormatError, RefusedError) as error:
        raise error.with_fields(path=source.name) from None
    if place.path is not None and place.is_named(_PARAMETERS):
        contents = _named(contents, place.path, options)
    return FlatFile(_NAME, source, contents, options)


def _named(contents: FileContents, path: str, options: OpenOptions) -> FileContents:
    """Return the tensors under their names, if a program beside the file has them."""
    shapes = _program_beside(path, options)
    if shapes is None:
        return contents
    places = contents.tensors.values()
    differ = [
        f"`{name}` {list(shape)} in the program, {list(place.shape)} in the file"
        for (name, shape), place in zip(shapes.items(), places, strict=False)
        if shape is not None and shape != place.shape
    ]
    if differ or len(shapes) != len(places):
        raise IntegrityError(
            "program and parameters do not agree",
            path=path,
            expected=f"{len(shapes):,} tensors, as in the program",
            found=listed(differ) if differ else f"{len(places):,}",
            hint="Are they from the same save?",
        )
    names = _structured(path, options)
    pickles = () if names is None else (split(path)[1].removesuffix(_PARAMETERS) + _INFO,)
    names = names or {}
    named = {names.get(name, name): place for name, place in zip(shapes, places, strict=True)}
    if len(named) < len(places):
        raise IntegrityError("two parameters have the same name", path=_beside(path, _PARAMETERS, _INFO))
    return msgspec.structs.replace(contents, tensors=named, pickles=pickles)


def _program_beside(parameters: str, options: OpenOptions) -> Shapes | None:
    for suffix in _PROGRAMS:
        path = _beside(parameters, _PARAMETERS, suffix)
        if not exists(path):
            continue
        source = open_source(path, backend=options.backend)
        try:
            if suffix == _PROGRAM:
                return parse_program(source)
            if source.nbytes > MAX_INDEX_NBYTES:
                raise LimitError("the program is too large", expected=f"at most {MAX_INDEX_NBYTES:,} bytes")
            return parse_json_program(bytes(source.read(ByteRange(0, source.nbytes))))
        except (FormatError, RefusedError) as error:
            raise error.with_fields(path=path) from None
        finally:
            source.close()
    return None


def _structured(path: str, options: OpenOptions) -> dict[str, str] | None:
    """Return the names that the code has for parameters, from the pickle beside them; None without one."""
    info = _beside(path, _PARAMETERS, _INFO)
    if not exists(info):
        return None
    source = open_source(info, backend=options.backend)
    try:
        return structured_names(read_pickle(source, strict=True).value)
    finally:
        source.close()


def _files(place: Place) -> Files | None:
    directory, name = split(place.path or "")
    stem = name.removesuffix(_PARAMETERS)
    beside = [stem + suffix for suffix in (*_PROGRAMS, _INFO) if exists(join(directory, stem + suffix))]
    return Files(directory, stem, (name, *beside), entries=(name,), opens_alone=not beside)


PADDLE: Final[Kind[Place]] = Kind(
    _NAME, _find, _open, files=_files, suffixes=(_PARAMETERS, _PROGRAM), only_tensors=True
)
