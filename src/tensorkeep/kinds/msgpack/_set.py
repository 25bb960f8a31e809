"""An index and its shards, as transformers saved models of Flax: each shard holds a part of one nested value."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from tensorkeep.errors import IntegrityError
from tensorkeep.formats.msgpack import merged
from tensorkeep.kinds.base import FileSet
from tensorkeep.kinds.msgpack._file import MsgpackFile
from tensorkeep.kinds.msgpack._nested import NestedTensors
from tensorkeep.tensors import LazyTensor


class MsgpackSet(NestedTensors, FileSet):
    """Several open files: a mapping of dotted name to `LazyTensor`, with the values of all as one `tree`."""

    files: Mapping[str, MsgpackFile]

    @cached_property
    def value(self) -> Any:
        """The nested value, with an `Array` for each tensor."""
        try:
            return merged({name: file.value for name, file in self.files.items()})
        except IntegrityError as error:
            raise error.with_fields(path=self.path) from None

    def pairs_of(self, name: str) -> LazyTensor:
        """Return a complex tensor as a real one: a last dimension of 2 holds the real and imaginary parts."""
        return self.files[self.shard_of(name)].pairs_of(name)
