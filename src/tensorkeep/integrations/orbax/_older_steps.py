"""Steps that orbax left in the directory of a store: they are restored until the store has newer ones.

Their items are restored as the values that programs saved.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import reduce
from typing import Any, Final, Literal

import jax
import msgspec
import numpy as np

from tensorkeep.checkpoint import open_checkpoint
from tensorkeep.errors import FormatError, SourceMissingError
from tensorkeep.kinds import Opened
from tensorkeep.limits import MAX_HEADER_NBYTES
from tensorkeep.tensors import LazyTensor
from tensorkeep.transport import ByteRange, exists, is_remote, join, list_names, open_source

_MARK: Final = "_CHECKPOINT_METADATA"
"""The file that orbax writes into the directory of a step when it is complete."""

_METRICS: Final = ("metrics", "metrics")
_OF_RUN: Final = ("metadata", "_ROOT_METADATA")

_step_named: Final = re.compile(r"(?:.*_)?(\d{1,19})", re.ASCII).fullmatch
"""The directory of a step: its number, perhaps with zeros before it (`step_format_fixed_length`) or a prefix
(`step_prefix`)."""

_OF_JAX: Final = {"jax_random_key", "jax_random_key_metadata"}
_OF_NUMPY: Final = {"np_random_key", "np_random_key_metadata"}
"""What orbax's files have in the place of a random key of JAX, and of the state of NumPy's random numbers."""

_IMPLEMENTATIONS: Final = {2: "threefry2x32", 4: "rbg"}
"""Numbers in one random key, and its algorithm, which orbax does not record."""


class OlderSteps:
    """Complete steps of orbax in a directory, here or at a URL; `engine` may read their arrays."""

    def __init__(self, root: str, engine: Literal["tensorstore"] | None) -> None:
        self._root, self._engine = root, engine
        self._complete: set[str] = set()

    def numbers(self) -> list[int]:
        """Return their numbers, ascending."""
        return sorted(self._directories())

    def open(self, step: int) -> AbstractContextManager[Opened]:
        """Open a step."""
        return open_checkpoint(self._path(step), framework="jax", engine=self._engine)

    def metrics(self, step: int) -> dict[str, float]:
        """Return the metrics of a step that are numbers."""
        found = _json(self._path(step), *_METRICS)
        return {name: float(value) for name, value in found.items() if isinstance(value, int | float)}

    def best(self, best_fn: Callable[[Any], float], mode: Literal["max", "min"]) -> tuple[float, int] | None:
        """Return the best value of all steps that have metrics, and the latest step that has it."""
        values = [(best_fn(metrics), step) for step in self.numbers() if (metrics := self.metrics(step))]
        sign = 1 if mode == "max" else -1
        return max(values, key=lambda found: (sign * found[0], found[1]), default=None)

    def of_run(self) -> dict[str, Any]:
        """Return what the caller said about the run."""
        custom = _json(self._root, *_OF_RUN).get("custom_metadata")
        return custom if isinstance(custom, dict) else {}

    def _path(self, step: int) -> str:
        return join(self._root, self._directories()[step])

    def _directories(self) -> dict[int, str]:
        """Return the directory of each step by its number; of two, the one without a prefix counts."""
        try:
            names = list_names(self._root) or []
        except SourceMissingError:
            names = []
        longest_first = sorted(names, key=len, reverse=True)
        numbered = [(int(found[1]), name) for name in longest_first if (found := _step_named(name))]
        return {number: name for number, name in numbered if self._is_complete(name)}

    def _is_complete(self, name: str) -> bool:
        """Say whether a step is complete, which it stays: at a URL, each look is a request."""
        if is_remote(self._root) and name in self._complete:
            return True
        is_complete = exists(join(join(self._root, name), _MARK))
        if is_complete:
            self._complete.add(name)
        return is_complete


def about(opened: Opened) -> dict[str, Any]:
    """Return the metadata of a checkpoint of orbax."""
    text = (opened.metadata or {}).get("orbax")
    found = {} if text is None else msgspec.json.decode(text)
    return found if isinstance(found, dict) else {}


def of_step(opened: Opened) -> dict[str, Any]:
    """Return what the caller said about a step."""
    custom = about(opened).get("custom_metadata")
    return custom if isinstance(custom, dict) else {}


def _json(directory: str, *names: str) -> dict[str, Any]:
    """Return what a small file of JSON says; nothing if it is not there."""
    path = reduce(join, names, directory)
    try:
        source = open_source(path)
    except SourceMissingError:
        return {}
    try:
        text = bytes(source.read(ByteRange(0, min(source.nbytes, MAX_HEADER_NBYTES))))
    finally:
        source.close()
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError) as error:
        raise FormatError("the file is not JSON", path=path, found=str(error)) from None


def older_tree(opened: Opened, name: str) -> Any:
    """Return what was saved of an item; an array alone is not in a dict, as it is in orbax's files."""
    tree = opened.tree[name]
    if isinstance(tree, dict) and tree.keys() == _OF_NUMPY:  # it has dtypes that JAX may lack
        return jax.tree.map(lambda leaf: np.asarray(leaf) if isinstance(leaf, LazyTensor) else leaf, tree)
    handlers = about(opened).get("item_handlers")
    handler = handlers.get(name) if isinstance(handlers, dict) else None
    is_array = isinstance(handler, str) and handler.endswith(".ArrayCheckpointHandler")
    return tree["checkpoint"] if is_array and isinstance(tree, dict) and tree.keys() == {"checkpoint"} else tree


def as_programs_saved(value: Any) -> Any:
    """Return an item as the value that was saved: a random key is two items in orbax's files."""
    if not isinstance(value, dict):
        return value
    if value.keys() == _OF_JAX:
        data = value["jax_random_key"]
        data = data["checkpoint"] if isinstance(data, dict) and data.keys() == {"checkpoint"} else data
        return _key(data) if _says(value["jax_random_key_metadata"], "typed") else data
    if value.keys() == _OF_NUMPY:
        return _numpy_state(value["np_random_key"], is_tuple=_says(value["np_random_key_metadata"], "legacy"))
    return value


def _says(metadata: Any, key: str) -> bool:
    return isinstance(metadata, dict) and metadata.get(key) is True


def _key(data: Any) -> Any:
    implementation = _IMPLEMENTATIONS.get(np.shape(data)[-1] if np.shape(data) else 0)
    if implementation is None or data.dtype != np.uint32:
        raise FormatError("a random key is malformed", expected="uint32 (..., 2) or (..., 4)", found=f"{data!r:.100}")
    return jax.random.wrap_key_data(data, impl=implementation)


def _numpy_state(state: Any, *, is_tuple: bool) -> Any:
    """Return the state of NumPy's random numbers, as `numpy.random.set_state` takes it."""
    plain = jax.tree.map(lambda leaf: leaf.item() if np.ndim(leaf) == 0 and hasattr(leaf, "item") else leaf, state)
    return tuple(plain) if is_tuple and isinstance(plain, list) else plain
