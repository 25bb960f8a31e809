"""TensorFlow's checkpoints: a data file, and the index that says where in it each tensor is.

The data file never has the name of an old one that is replaced, so that the index, which appears by one rename,
always has the data that it describes beside it, whenever the process is killed.

A checkpoint has tensors by name, or describes them as variables of objects, which `tf.train.Checkpoint` restores.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import count
from typing import Final

from tensorkeep.buffers import Buffer
from tensorkeep.digests import Crc32c
from tensorkeep.errors import UnsupportedError
from tensorkeep.exporting._format import Content, ExportFormat, OutputFile, Plan
from tensorkeep.formats.tensorflow import (
    BY_NUMBER,
    INDEX_SUFFIX,
    NUMBERS,
    OBJECT_GRAPH_KEY,
    STRING,
    BundledTensor,
    Part,
    data_name,
    emit_index,
    emit_object_graph,
    emit_string,
    is_data_name,
    key_of,
    names_of,
    stem_of,
)
from tensorkeep.limits import MAX_NDIM
from tensorkeep.transport import ByteSink

_ALIGNMENT: Final = 64
"""Each tensor begins at a multiple of so many bytes, so that it can be used where it is mapped."""

_MAX_NDIM: Final = min(MAX_NDIM, 254)
"""TensorFlow has no shapes of more dimensions."""


def _plan(content: Content, name: str, *, has_objects: bool = False) -> Plan:
    stem = name.removesuffix(INDEX_SUFFIX)
    if not stem:
        raise UnsupportedError("the checkpoint has no name", found=repr(name), expected="a name such as model.index")
    replaced = frozenset(other for other in content.beside if is_data_name(other) and stem_of(other) == stem)
    n_shards = next(n for n in count(1) if data_name(stem, 0, n) not in replaced)
    writing = _Writing(content, n_shards, has_objects=has_objects)
    files = (
        OutputFile(data_name(stem, 0, n_shards), writing.write_data),
        OutputFile(stem + INDEX_SUFFIX, writing.write_index),
    )
    names = {} if has_objects else {key: own for own, key in names_of(content.tensors).items() if own != key}
    return Plan(files, replaced, names=names)


class _Writing:
    """Writes the data, and then the index, from what it found on the way.

    All tensors are in the first of `n_shards` data files, and no others are written: TensorFlow opens those in which
    tensors are.
    """

    def __init__(self, content: Content, n_shards: int, *, has_objects: bool) -> None:
        self._has_objects = has_objects
        self._content = content
        self._n_shards = n_shards
        self._written: dict[str, BundledTensor] = {}

    def write_data(self, sink: ByteSink) -> None:
        sink.write(self._buffers())

    def _buffers(self) -> Iterator[Buffer]:
        position = 0
        for name, tensor in self._content.tensors.items():
            gap = -position % _ALIGNMENT if tensor.nbytes else 0
            if gap:
                yield bytes(gap)
            start = position + gap
            sum_ = Crc32c()
            for buffer in tensor.buffers():
                sum_.update(buffer)
                yield buffer
            position = start + tensor.nbytes
            part = Part((0,) * len(tensor.shape), tensor.shape, 0, start, position, sum_.value())
            key = key_of(name) if self._has_objects else name
            self._written[key] = BundledTensor(BY_NUMBER[NUMBERS[tensor.dtype.name]], tensor.shape, (part,))
        if self._has_objects:
            text, crc = emit_string(emit_object_graph(self._content.tensors))
            yield text
            part = Part((), (), 0, position, position + len(text), crc)
            self._written[OBJECT_GRAPH_KEY] = BundledTensor(BY_NUMBER[STRING], (), (part,))

    def write_index(self, sink: ByteSink) -> None:
        sink.write([emit_index(self._written, self._n_shards)])


def _name_problem(name: str) -> str | None:
    if not name or name.startswith("\0"):
        return "TensorFlow keeps other things under such keys"
    if name == OBJECT_GRAPH_KEY:
        return "TensorFlow describes objects under this key"
    return None


def _object_problem(name: str) -> str | None:
    """Return why an object cannot be called so: its name would not come back from the key."""
    return None if names_of([key_of(name)]) == {name: key_of(name)} else "TensorFlow has no such names of objects"


TENSORFLOW: Final = ExportFormat(
    key="tensorflow",
    what="a TensorFlow checkpoint",
    suffixes=(INDEX_SUFFIX,),
    dtypes=frozenset(NUMBERS),
    plan=_plan,
    name_problem=_name_problem,
    max_ndim=_MAX_NDIM,
)

TENSORFLOW_OBJECTS: Final = ExportFormat(
    key="tensorflow-objects",
    what="a TensorFlow checkpoint of objects",
    suffixes=(),
    dtypes=frozenset(NUMBERS),
    plan=partial(_plan, has_objects=True),
    name_problem=_object_problem,
    max_ndim=_MAX_NDIM,
)
