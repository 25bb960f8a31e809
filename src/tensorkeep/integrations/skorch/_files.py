"""The files of a net: written all at once, and read whichever program wrote them."""

from __future__ import annotations

import io
import json
import os
import warnings
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any, Final, TypeAlias

import msgspec
import numpy as np

from tensorkeep.checkpoint import open_checkpoint, verify
from tensorkeep.digests import digest_of
from tensorkeep.errors import (
    FormatError,
    StateDictMismatchError,
    StateError,
    TensorkeepError,
    UnsupportedError,
    as_transport_error,
)
from tensorkeep.integrations.skorch._names import CHECKPOINT, HISTORY
from tensorkeep.integrations.skorch._pickle import is_net, parts_of_net
from tensorkeep.kinds import LoadOptions, refuse
from tensorkeep.tensors import Prepared, Sealing, file_body, prepare, write_file
from tensorkeep.transport import ByteSink, finish_pending_commit, is_remote, local_path, transaction

Target: TypeAlias = Any
"""A path, or a binary file object."""

_Content: TypeAlias = "Prepared | bytes"

_SET: Final = "skorch"
"""Name of the transaction in a directory, so that one save runs there at a time."""

_PATIENCE_S: Final = 60.0
"""Seconds to wait for another save into the directory, as in a parameter search with many jobs."""

_EVENT: Final = "skorch.event"
"""Metadata key: a digest that is equal in files that were saved together."""

_PICKLE_SUFFIXES: Final = (".pkl", ".pickle", ".pt", ".pth", ".bin")
"""Endings of names under which others expect a pickle."""

_PARTS: Final = "skorch.parts"
"""Metadata key: the parts in a file that holds all of them."""

_BY_PART: Final = "Pass it as the part that it holds: f_params, f_optimizer, …"
_DIGEST_LENGTH: Final = 32
_LENGTH_NBYTES: Final = 8
"""Bytes of the header length at the start of a safetensors file."""


class SavedFile(msgspec.Struct, frozen=True):
    """The parts of a net in one file.

    Attributes:
        path: The file, as messages name it.
        parts: Part name to state.
        event: A value that files saved together have in common; None if the file has none.
        is_ours: Whether tensorkeep wrote it, and not skorch.
    """

    path: str
    parts: dict[str, Any]
    event: str | None = None
    is_ours: bool = False


def write_files(
    states: Mapping[str, Any], history: list[Any], *, targets: Mapping[str, Target], durable: bool
) -> None:
    """Write parts to their files, all of them or none.

    The files of one directory change together. Nothing is written before all parts are known to be data.
    """
    paths = {part: _real_path(local_path(target)) for part, target in targets.items() if is_path(target)}
    if len(set(paths.values())) < len(paths):
        twice = next(path for path in paths.values() if list(paths.values()).count(path) > 1)
        raise UnsupportedError("two parts would be written to one file", path=twice)
    _warn_of_pickle_names(paths)
    contents = {part: _content(part, states[part], _label(target)) for part, target in targets.items()}
    text = contents.get(HISTORY)
    event = _digest(text if isinstance(text, bytes) else json.dumps(history, default=_plain_or_text).encode())
    metadata = {part: {_EVENT: event} for part in targets}
    if CHECKPOINT in targets:
        metadata[CHECKPOINT][_PARTS] = " ".join(states[CHECKPOINT])
    with ExitStack() as stack:
        staged = {
            directory: stack.enter_context(transaction(directory, _SET, durable=durable, patience_s=_PATIENCE_S))
            for directory in sorted({os.path.dirname(path) for path in paths.values()})
        }
        for part, path in paths.items():
            directory, name = os.path.split(path)
            with staged[directory].file(name) as sink:
                _write(sink, contents[part], metadata[part])
        for part in targets.keys() - paths.keys():
            _write_to_object(targets[part], contents[part], metadata[part])
        for change in staged.values():
            change.commit()


def _warn_of_pickle_names(paths: Mapping[str, str]) -> None:
    for part, path in paths.items():
        if path.endswith(_PICKLE_SUFFIXES):
            form = "JSON" if part == HISTORY else "a safetensors file"
            name = os.path.splitext(os.path.basename(path))[0]
            better = f"{name}.{'json' if part == HISTORY else 'safetensors'}"
            warnings.warn(
                f"{path} gets {form}, and others expect a pickle under that name: name it {better}",
                stacklevel=4,
            )


def _real_path(path: str) -> str:
    """Resolve links in the directory, so that it has one name, but not the file itself."""
    directory, name = os.path.split(path)
    return os.path.join(os.path.realpath(directory or os.curdir), name)


def _content(part: str, state: Any, path: str) -> _Content:
    """Prepare a state for writing, or encode a history as JSON."""
    if part == HISTORY:
        return _json(state, path)
    try:
        return prepare(state)
    except StateError as error:
        raise error.with_fields(path=path) from None


def _json(history: list[Any], path: str) -> bytes:
    """Encode a history as skorch does."""
    try:
        return json.dumps(history, default=_plain).encode()
    except (TypeError, ValueError) as error:
        raise StateError(
            f"`{_place_without_json(history)}` has no JSON form",
            path=path,
            found=str(error),
            hint="Record numbers and texts, or save to f_checkpoint, which keeps tensors and arrays in a history too",
        ) from None


def _plain(value: Any) -> Any:
    """Convert a NumPy scalar to a Python number."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__module__}.{type(value).__qualname__}")


def _plain_or_text(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else repr(value)


def _place_without_json(history: list[Any]) -> str:
    for place, row in enumerate(history):
        for name, value in row.items():
            try:
                json.dumps({name: value}, default=_plain)
            except (TypeError, ValueError):
                return f"history[{place}][{name!r}]"
    return "history"


def _write(sink: ByteSink, content: _Content, metadata: Mapping[str, str]) -> None:
    if isinstance(content, bytes):
        sink.write([content])
    else:
        write_file(sink, content.to_write, content.with_ties(metadata), state=content.state, sealing=Sealing())


def _as_bytes(content: _Content, metadata: Mapping[str, str]) -> bytes:
    if isinstance(content, bytes):
        return content
    body = file_body(content.to_write, content.with_ties(metadata), state=content.state, sealing=Sealing())
    return b"".join(body.pieces())


def _write_to_object(target: Any, content: _Content, metadata: Mapping[str, str]) -> None:
    """Write to a file object, and leave it open."""
    if not hasattr(target, "write"):
        raise UnsupportedError(
            "not a file object that can be written to",
            expected="a path or a binary file object",
            found=type(target).__name__,
        )
    if isinstance(target, io.TextIOBase):
        if not isinstance(content, bytes):
            raise UnsupportedError(
                "the file object takes text", path=_label(target), hint='Open it in binary mode: "wb"'
            )
        target.write(content.decode())
    else:
        data = memoryview(_as_bytes(content, metadata))
        while data:
            n_written = target.write(data)
            data = data[n_written:] if isinstance(n_written, int) else data[len(data) :]
    if hasattr(target, "flush"):
        target.flush()


def place_of(path: str) -> str:
    """Return the path where a file is now, after finishing a save that was killed while committing."""
    if is_remote(path):
        return path
    directory, name = os.path.split(path)
    pending = finish_pending_commit(directory or os.curdir, _SET)
    return path if pending is None else pending.resolve(name)


def has_net(path: str) -> bool:
    """Say whether a file was written by the functions of this module."""
    try:
        with open_checkpoint(path) as opened:
            return opened.index is None and _EVENT in opened.metadata
    except TensorkeepError:
        return False


def read_file(target: Target, part: str, classes: Mapping[str, type]) -> SavedFile:
    """Read a part, or all parts, from a file of any kind; nothing in a pickle is run.

    Bytes are checked against their digests while they are read, if the file has digests.
    """
    path = _label(target)
    text = _json_text(target) if part == HISTORY else None
    if text is not None:
        return SavedFile(path, {HISTORY: _parsed(text, path)}, _digest(text))
    with open_checkpoint(target, framework="torch") as opened:
        if not opened.loads_parts:
            if is_path(target):
                refuse(verify(target).findings, path)
            value = opened.load_tree()
            has_all = is_net(value)
            found = SavedFile(path, parts_of_net(value, path) if has_all else {part: value})
        else:
            metadata = opened.metadata
            has_all = _PARTS in metadata
            options = LoadOptions(
                only={part}.__contains__ if has_all and part in metadata[_PARTS].split() else None,
                classes=classes,
                framework=None if opened.has_tree else "torch",  # a state names the library of each tensor
            )
            value = opened.verified().load_state(options)
            is_ours = has_all or _EVENT in metadata
            found = SavedFile(path, value if has_all else {part: value}, metadata.get(_EVENT), is_ours)
    if part == CHECKPOINT and not has_all:
        raise StateDictMismatchError("the file does not hold all parts of a net", path=path, hint=_BY_PART)
    if part != CHECKPOINT and part not in found.parts:
        raise StateDictMismatchError(f"the file has no {part}", path=path, found=", ".join(found.parts) or "nothing")
    return found if part == CHECKPOINT else msgspec.structs.replace(found, parts={part: found.parts[part]})


def is_path(target: Target) -> bool:
    """Say whether a target is a path, and not a file object."""
    return isinstance(target, str | os.PathLike)


def _json_text(target: Target) -> bytes | None:
    """Return the text of a history, or None if the file holds something else."""
    if is_path(target):
        with as_transport_error("could not read the file", _label(target)), open(local_path(target), "rb") as file:
            return _json_text(file)
    if not hasattr(target, "read"):
        return None
    start = target.tell()
    text = target.read()
    data = text.encode() if isinstance(text, str) else bytes(text)
    if data.startswith(b"[") and b"\0" not in data[:_LENGTH_NBYTES]:  # a header length contains zeros
        return data
    target.seek(start)
    return None


def _parsed(text: bytes, path: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise FormatError("the history is not JSON", path=path, found=str(error)) from None


def _digest(text: bytes) -> str:
    return digest_of(text).hex()[:_DIGEST_LENGTH]


def _label(target: Target) -> str:
    return os.fsdecode(target) if is_path(target) else str(getattr(target, "name", f"<{type(target).__name__}>"))
