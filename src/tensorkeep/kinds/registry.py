"""All kinds in order of preference: a kind is imported when a path may be one. To add a kind, add it to `KINDS`."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any, Final

from tensorkeep.errors import FormatError
from tensorkeep.formats import sniff
from tensorkeep.kinds.base import Found, Kind, LazyKind, Place
from tensorkeep.texts import listed

KINDS: Final[tuple[LazyKind | Kind[Any], ...]] = (
    LazyKind("tensorkeep.kinds.patched:PATCHED", names=("patched.json",)),
    LazyKind(
        "tensorkeep.kinds.tensorflow:TENSORFLOW",
        suffixes=(".index", ".meta"),
        magics=(b"\0\0",),
        names=("saved_model.pb", "*.index", "*.data-*-of-*"),
        completions=(".index",),
        beginnings=("*.ckpt",),
    ),
    LazyKind(
        "tensorkeep.kinds.dcp:DISTRIBUTED",
        suffixes=(".metadata",),
        names=(".metadata", "__*.metadata", "shard-*.safetensors"),
    ),
    LazyKind("tensorkeep.kinds.ranks:RANKS", suffixes=("tensorkeep.ranks.json",), names=("tensorkeep.ranks.json",)),
    LazyKind("tensorkeep.kinds.npy:NPY", suffixes=(".npy",), magics=(b"\x93NUMPY",)),
    LazyKind("tensorkeep.kinds.npy:NPZ", suffixes=(".npz",), magics=(b"PK\x03\x04", b"PK\x05\x06")),
    LazyKind("tensorkeep.kinds.gguf:GGUF", suffixes=(".gguf",), magics=(b"GGUF",), names=("*.gguf", "*.GGUF")),
    LazyKind("tensorkeep.kinds.keras:KERAS", suffixes=(".keras",), magics=(b"PK\x03\x04",)),
    LazyKind(
        "tensorkeep.kinds.keras:KERAS_SHARDS",
        suffixes=(".weights.json", ".h5.index.json"),
        names=("*.h5.index.json", "*.weights.json"),
    ),
    LazyKind("tensorkeep.kinds.hdf5:HDF5", suffixes=(".h5", ".hdf5", ".hdf"), magics=(b"\x89HDF\r\n\x1a\n",)),
    LazyKind(
        "tensorkeep.kinds.msgpack:MSGPACK",
        suffixes=(".msgpack", ".msgpack.index.json"),
        magics=tuple(bytes([byte]) for byte in (*range(0x81, 0x90), 0xDE, 0xDF)),
        names=("*.msgpack", "*.msgpack.index.json"),
    ),
    LazyKind(
        "tensorkeep.kinds.arrow:ARROW",
        suffixes=(".arrow", ".arrows", ".feather", ".ipc"),
        magics=(b"ARROW1", b"\xff\xff\xff\xff"),
    ),
    LazyKind("tensorkeep.kinds.arrow:PARQUET", suffixes=(".parquet",), magics=(b"PAR1",)),
    LazyKind("tensorkeep.kinds.arrow:FEATHER_1", magics=(b"FEA1",)),
    LazyKind(
        "tensorkeep.kinds.paddle:PADDLE",
        suffixes=(".pdiparams", ".pdmodel"),
        magics=(bytes(16),),
        names=("*.pdiparams",),
    ),
    LazyKind(
        "tensorkeep.kinds.orbax:ORBAX",
        names=(
            "_METADATA",
            "_CHECKPOINT_METADATA",
            "manifest.ocdbt",
            "checkpoint",
            "default",
            "state",
            "params",
            "items",
            "[0-9]*",
            "*_[0-9]*",
        ),
    ),
    LazyKind(
        "tensorkeep.kinds.graphs:ONNX",
        suffixes=(".onnx",),
        magics=tuple(bytes((0x08, version, key)) for version in range(3, 32) for key in b"\x12\x3a"),
    ),
    LazyKind("tensorkeep.kinds.graphs:OPENVINO", suffixes=(".xml",), magics=(b"<?xml", b"<net", b"\xef\xbb\xbf<")),
    LazyKind("tensorkeep.kinds.tensorizer:TENSORIZER", suffixes=(".tensors",), magics=(b"|TZR|",)),
    LazyKind("tensorkeep.kinds.pt2:PT2", suffixes=(".pt2",), magics=(b"PK\x03\x04",)),
    LazyKind(
        "tensorkeep.kinds.pickles:PICKLES",
        suffixes=(
            ".bin",
            ".ckpt",
            ".dill",
            ".joblib",
            ".mdl",
            ".pdopt",
            ".pdparams",
            ".pickle",
            ".pkl",
            ".pt",
            ".pth",
            ".th",
        ),
        looks_closer=True,
    ),
)
"""Order matters: pickles claim every zip archive, so a new kind goes before them."""

_FOLDER: Final = LazyKind("tensorkeep.kinds.folder:FOLDER")
_SAFETENSORS: Final = LazyKind("tensorkeep.kinds.safetensors:SAFETENSORS", suffixes=(".safetensors",))
"""Claims what no other kind does: if there is nothing, its error says what is missing."""

_STAND_INS: Final = (b"version https://git-lfs", b"<!DOCTYPE html", b"<!doctype html", b"<html")
"""First bytes of what Git and servers give instead of a file."""


def find_kind(place: Place, *, with_manifests: bool = False) -> Found:
    """Recognize what is at a place; `with_manifests` prefers a directory's manifest to the checkpoint in it."""
    first = (_FOLDER.imported(),) if with_manifests else ()
    for kind in chain(first, _candidates(place)):
        where = kind.find(place)
        if where is not None:
            _refuse_stand_in(place, kind)
            return Found(kind, where, _format_of(kind), place.path)
    if place.missing is not None:
        raise place.missing
    safetensors = _SAFETENSORS.imported()
    return Found(safetensors, safetensors.find(place), _SAFETENSORS.format, place.path)


def _format_of(kind: Kind[Any]) -> str:
    """Return the name by which policies know a kind; only kinds that are imported are compared."""
    named = (lazy for lazy in (*KINDS, _FOLDER) if isinstance(lazy, LazyKind))
    return next((lazy.format for lazy in named if lazy.is_imported_as(kind)), "")


def _refuse_stand_in(place: Place, kind: Kind[Any]) -> None:
    """Refuse a text that came instead of the file, which nothing but its name says is of this kind."""
    if place.is_directory or place.is_absent or not place.head.startswith(_STAND_INS):
        return
    sniffed = sniff(place.head)
    if sniffed is not None:
        message, hint = "this is not the file itself", sniffed.hint
        raise FormatError(message, path=place.path, expected=kind.name, found=sniffed.what, hint=hint)


def find_tensors(place: Place) -> Kind[Any] | None:
    """Return the kind of a file that holds nothing that any program would run; None if no kind claims it."""
    return next((kind for kind in _candidates(place) if kind.only_tensors and kind.find(place)), None)


def known_suffixes() -> tuple[str, ...]:
    """Return the file suffixes of all kinds."""
    return tuple(suffix for kind in (*KINDS, _SAFETENSORS) for suffix in kind.suffixes)


def hint_for_directory(place: Place) -> str | None:
    """Name the files in a directory that would open by their own paths."""
    if not place.is_directory:
        return None
    files = [name for name in place.names if name.lower().endswith(known_suffixes())]
    return f"Open a file in it by its own path: {listed(files, 3)}" if files else None


def _candidates(place: Place) -> Iterator[Kind[Any]]:
    for kind in KINDS:
        candidate = kind.candidate(place)
        if candidate is not None:
            yield candidate
