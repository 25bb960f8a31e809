"""What all processes save together, and what this one has of it. All processes come to the same plan, alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import jax
import msgspec

from tensorkeep.arrays import StreamedTensor, TensorToWrite, tensor_to_write
from tensorkeep.arrays.jax.memory import on_host
from tensorkeep.buffers import Buffer
from tensorkeep.checkpoint import PlannedTensor, RankedTensors
from tensorkeep.digests import new_hasher
from tensorkeep.dtypes import DType
from tensorkeep.errors import UnsupportedError
from tensorkeep.jax.meshes._array_parts import ArrayPart
from tensorkeep.jax.meshes._regions import owners_of, region_of
from tensorkeep.tensors import Prepared, Region

_SUM_NBYTES = 8
"""Bytes of a digest that are compared."""

_COMPARED_NBYTES = 1024
"""Bytes of an array over several processes up to which its content may be compared."""


class SharedPlan(msgspec.Struct, frozen=True):
    """A state that all processes save together.

    Attributes:
        prepared: The state; arrays over several processes are described in it, and their bytes are not asked for.
        ranked: The arrays over several processes, and which process writes which part of them.
        parts: What this process writes of them.
        sums: Digests of the structure and of each tensor's description, and of the content of tensors that every
            process has for itself, or whole; equal in all processes.
    """

    prepared: Prepared
    ranked: RankedTensors
    parts: list[ArrayPart]
    sums: Sums

    def content(self) -> Prepared:
        """Return what this process writes as tensors by name, to be copied."""
        content = {_part_name(place): part.content for place, part in enumerate(self.parts)}
        own = {_own_name(name): tensor for name, tensor in self._own_tensors().items()}
        return Prepared({**content, **own}, {}, None, {}, None)

    def with_content(self, copied: Mapping[str, TensorToWrite]) -> SharedPlan:
        """Return the plan with copies of what `content` returned."""
        parts = [
            msgspec.structs.replace(part, content=copied[_part_name(place)]) for place, part in enumerate(self.parts)
        ]
        own = {name: copied[_own_name(name)] for name in self._own_tensors()}
        prepared = msgspec.structs.replace(self.prepared, to_write={**self.prepared.to_write, **own})
        return msgspec.structs.replace(self, parts=parts, prepared=prepared)

    def _own_tensors(self) -> dict[str, TensorToWrite]:
        """Return the tensors that the first process writes beside its parts; none on the others."""
        if jax.process_index():
            return {}
        return {name: tensor for name, tensor in self.prepared.to_write.items() if name not in self.ranked.tensors}


class Sums(msgspec.Struct, frozen=True):
    """What processes compare before they save.

    Attributes:
        structure: Digest of the names, and of all values that are not tensors.
        tensors: Digest of each tensor, in the order of the state.
    """

    structure: bytes
    tensors: list[bytes]


def plan_together(prepared: Prepared) -> SharedPlan:
    """Plan what each process writes: parts that several have are given to the one that has least to do."""
    n_ranks, here = jax.process_count(), jax.process_index()
    loads, n_parts = [0] * n_ranks, [0] * n_ranks
    tensors: dict[str, PlannedTensor] = {}
    parts: list[ArrayPart] = []
    for name, described in prepared.to_write.items():
        array: Any = prepared.tensors.get(name)
        if not spans_processes(array):
            continue
        _refuse_packed(name, described)
        owned: list[tuple[int, int, Region]] = []
        for region, owners in owners_of(array.sharding, array.shape).items():
            if not region.n_elements:
                continue
            rank = min(owners, key=loads.__getitem__)
            if rank == here:
                parts.append(_part(array, described.dtype, region, name))
            owned.append((rank, n_parts[rank], region))
            loads[rank] += described.dtype.nbytes(region.n_elements)
            n_parts[rank] += 1
        tensors[name] = PlannedTensor(described.dtype, array.shape, owned)
    return SharedPlan(prepared, RankedTensors(tensors, n_ranks), parts, _sums(prepared, tensors))


def _part_name(place: int) -> str:
    return f"part/{place}"


def _own_name(name: str) -> str:
    return f"own/{name}"


def spans_processes(value: Any) -> bool:
    """Say whether a value is an array with shards in other processes."""
    return isinstance(value, jax.Array) and not isinstance(value, jax.core.Tracer) and not value.is_fully_addressable


def _part(array: jax.Array, dtype: DType, region: Region, name: str) -> ArrayPart:
    shard = next(each for each in array.addressable_shards if region_of(each.index, array.shape) == region)
    if next(iter(shard.data.devices())).platform == "cpu":
        return ArrayPart(dtype, array.shape, region, tensor_to_write(shard.data, name))

    def buffers() -> Iterator[Buffer]:  # the host has a copy while it is written, and no longer
        return tensor_to_write(on_host(shard.data), name).buffers()

    return ArrayPart(
        dtype, array.shape, region, StreamedTensor(dtype, region.shape, dtype.nbytes(region.n_elements), buffers)
    )


def _refuse_packed(name: str, described: TensorToWrite) -> None:
    if described.dtype.is_packed:
        raise UnsupportedError(
            f"tensor `{name}` has elements that share bytes, which several processes cannot write",
            tensor=name,
            expected="elements of at least one byte",
            found=described.dtype.name,
            hint="Cast it to float8_e4m3fn, which has all its numbers",
        )


def _sums(prepared: Prepared, shared: dict[str, PlannedTensor]) -> Sums:
    structure = new_hasher()
    structure.update((prepared.state or "").encode())
    structure.update(msgspec.json.encode(list(prepared.to_write)))
    sums: list[bytes] = []
    for name, described in prepared.to_write.items():
        hasher = new_hasher()
        hasher.update(msgspec.json.encode((described.dtype.name, described.shape)))
        content: TensorToWrite | None = described
        if name in shared:
            hasher.update(msgspec.json.encode(shared[name].parts))
            content = _everywhere(prepared.tensors[name], described, name)
        for buffer in () if content is None else content.buffers():
            hasher.update(memoryview(buffer).cast("B"))
        sums.append(hasher.digest()[:_SUM_NBYTES])
    return Sums(structure.digest()[:_SUM_NBYTES], sums)


def _everywhere(array: Any, described: TensorToWrite, name: str) -> TensorToWrite | None:
    """Return what a small array of whole numbers holds, such as a step or a random key, if every process has it all.

    It is compared, so that arrays of two steps are not taken for one state. Floats may differ in their last bits.
    """
    is_whole_numbers = described.dtype.numpy.startswith(("int", "uint", "bool"))
    if not (array.is_fully_replicated and is_whole_numbers and described.nbytes <= _COMPARED_NBYTES):
        return None
    return tensor_to_write(array.addressable_data(0), name)
