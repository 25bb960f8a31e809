"""What a checkpoint has beside its tensors: metadata, what was not read, and the configuration that lies with it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import closing
from itertools import islice
from typing import Any, Final

import msgspec

from tensorkeep.errors import TensorkeepError
from tensorkeep.kinds import Opened
from tensorkeep.texts import shortened
from tensorkeep.transport import (
    ByteRange,
    is_directory,
    is_file,
    is_remote,
    join,
    list_names,
    local_path,
    open_source,
    split,
    without_secrets,
)

_MAX_CHARS: Final = 100_000
_MAX_ITEMS: Final = 1000
_MAX_BESIDE_NBYTES: Final = 2**20

_BESIDE: Final = (
    "config.json",
    "generation_config.json",
    "adapter_config.json",
    "model_index.json",
    "preprocessor_config.json",
    "tokenizer_config.json",
    "trainer_state.json",
)
"""Files with facts about a model; no others beside it are read."""


def facts(of: str, opened: Opened, path: str) -> dict[str, Any]:
    """Return everything beside the tensors."""
    left_out = opened.left_out()
    unknowns = [(each.name, shortened(each.what, _MAX_CHARS)) for each in left_out if not each.is_data]
    dangers = {name: why for file in opened.describe().files for name, why in file.dangers.items()}
    return {
        "of": of,
        "path": str(without_secrets(opened.path)),
        "form": opened.format_name,
        "framework": next((lazy.library for lazy in islice(opened.values(), 1)), None),
        "metadata": _texts(opened.metadata.items()),
        "attributes": _texts((name, _text(value)) for name, value in opened.attributes.items()),
        "has_tree": opened.has_tree,
        "unknowns": unknowns[:_MAX_ITEMS],
        "n_unknowns": len(unknowns),
        "strings": _texts((each.name, each.what) for each in left_out if each.is_data),
        "dangers": _texts(dangers.items()),
        "splits": [(name, len(pieces)) for name, pieces in islice(opened.splits.items(), _MAX_ITEMS)],
        "beside": list(_beside(path, [file.file for file in opened.describe().files])),
    }


def _texts(pairs: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    return [(name, shortened(text, _MAX_CHARS)) for name, text in islice(pairs, _MAX_ITEMS)]


def _text(value: Any) -> str:
    """Return a value of a header as text, of long ones the beginning."""
    return value if isinstance(value, str) else str(value)


def _beside(path: str, files: Iterable[str]) -> Iterable[dict[str, Any]]:
    """Read the JSON files with facts that are in the directory of a checkpoint of these files."""
    folder = path if is_directory(path) else split(path)[0] or "."
    names = list_names(folder) if is_remote(path) else _own_names(os.fspath(local_path(folder)), files)
    for name in _BESIDE if names is None else [name for name in _BESIDE if name in names]:
        text = _json_text(join(folder, name))
        if text is not None:
            yield {"name": name, "text": text}


def _own_names(folder: str, files: Iterable[str]) -> list[str]:
    """Return names in a local directory, without links elsewhere than into it, or to where the tensors are."""
    own = {os.path.realpath(folder), *(_real_folder(folder, file) for file in files)}
    return [name for name in _BESIDE if _real_folder(folder, name) in own]


def _real_folder(folder: str, name: str) -> str:
    return os.path.dirname(os.path.realpath(os.path.join(folder, name)))


def _json_text(path: str) -> str | None:
    """Return the text of a JSON file; None without one, or if it is anything else."""
    try:
        if not is_file(path):
            return None
        with closing(open_source(path, backend="pread")) as source:
            if source.nbytes > _MAX_BESIDE_NBYTES:
                return None
            data = bytes(source.read(ByteRange(0, source.nbytes)))
        msgspec.json.decode(data)
        return data.decode()
    except (TensorkeepError, OSError, ValueError, RecursionError):
        return None
