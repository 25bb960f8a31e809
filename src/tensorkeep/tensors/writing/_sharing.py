"""What is stored of tensors that share memory: each byte once. Pure.

Tensors that have elements in common form a group. If all members are one tensor under several names, it is stored
under the first name. Otherwise the member that covers the memory of all in C order is stored; if no member does, that
memory itself is stored as a tensor of its own. The other members become aliases: views of what is stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Literal, TypeAlias

import msgspec

from tensorkeep.arrays import Extent, StreamedTensor, TensorToWrite
from tensorkeep.arrays.in_memory import TensorInMemory
from tensorkeep.dtypes import BY_NAME, DType
from tensorkeep.errors import UnsupportedError
from tensorkeep.formats.safetensors import Alias
from tensorkeep.tensors.indexing import c_strides
from tensorkeep.tensors.readers import StoredTensor
from tensorkeep.tensors.writing._overlap import Elements, crowded, overlapping, with_common_elements
from tensorkeep.transport import ByteRange

Ties: TypeAlias = Literal["share", "copy", "error"]
"""What to do with tensors that share memory: let them share it, give each its own, or refuse."""

_SUFFIX = "#storage"


def check_ties(ties: str) -> None:
    """Refuse any other word for what to do with tensors that share memory."""
    if ties not in {"share", "copy", "error"}:
        raise UnsupportedError(f"ties {ties!r} is invalid", expected='"share", "copy" or "error"')


class Sharing(msgspec.Struct, frozen=True):
    """What is stored of tensors, some of which share memory.

    Attributes:
        to_write: Name to description, of everything that is stored, in the order of the tensors.
        aliases: Name to what it is a view of, for the tensors that are not stored.
        storages: Names in `to_write` that are not tensors of the state, but memory of aliases.
    """

    to_write: dict[str, TensorToWrite]
    aliases: dict[str, Alias]
    storages: tuple[str, ...]


class _Member(msgspec.Struct, frozen=True):
    name: str
    tensor: TensorToWrite
    extent: Extent

    @property
    def identity(self) -> tuple[object, ...]:
        """Equal for two names of one tensor."""
        extent, tensor = self.extent, self.tensor
        return (
            extent.start,
            extent.stop,
            extent.strides,
            tensor.dtype.name,
            tensor.shape,
            extent.is_conj,
            extent.is_neg,
        )

    @property
    def elements(self) -> Elements:
        """Where its elements are in memory."""
        extent, tensor = self.extent, self.tensor
        return Elements(
            extent.start,
            extent.stop,
            tensor.dtype.itemsize,
            tensor.shape,
            extent.strides if self.is_described else None,
        )

    @property
    def is_described(self) -> bool:
        """Whether dtype, shape and strides say where its elements are."""
        extent, tensor = self.extent, self.tensor
        return (
            not tensor.dtype.is_packed
            and len(extent.strides) == len(tensor.shape)
            and min(extent.strides, default=0) >= 0
        )

    def can_be_view_at(self, start: int) -> bool:
        """Whether it can be a view of an array of its dtype that begins at an address."""
        return self.is_described and (self.extent.start - start) % self.tensor.dtype.itemsize == 0

    @property
    def is_expanded(self) -> bool:
        """Whether it has more elements than memory for them."""
        return self.is_described and self.tensor.nbytes > self.extent.stop - self.extent.start

    @property
    def has_c_strides(self) -> bool:
        """Whether its elements are in C order without gaps."""
        in_order = zip(self.tensor.shape, self.extent.strides, c_strides(self.tensor.shape), strict=True)
        return all(n == 1 or stride == plain for n, stride, plain in in_order)

    @property
    def is_plain(self) -> bool:
        """Whether its memory is what a file would hold."""
        return self.has_c_strides and not (self.extent.is_conj or self.extent.is_neg)

    def seen_from(self, owner: str, dtype: DType, shape: tuple[int, ...], start: int) -> Alias:
        """Return it as a view of a stored tensor, with only the fields that differ."""
        extent, tensor = self.extent, self.tensor
        return Alias(
            owner,
            offset=extent.start - start,
            dtype=None if tensor.dtype == dtype else tensor.dtype.name,
            shape=None if tensor.shape == shape else tensor.shape,
            strides=None if self.has_c_strides else extent.strides,
            is_conj=extent.is_conj,
            is_neg=extent.is_neg,
        )


def share(to_write: Mapping[str, TensorToWrite], *, with_expanded: bool = True) -> Sharing:
    """Choose what is stored of tensors that share memory.

    Tensors whose elements strides cannot describe (packed, reversed) are stored separately, unless they are another
    name of one tensor.
    """
    extents = _extents(to_write)
    place = {name: place for place, name in enumerate(to_write)}
    parts: list[list[_Member]] = []
    for group in _groups(to_write, extents, with_expanded=with_expanded):
        names = sorted(group, key=place.__getitem__)
        parts += _parts([_Member(name, to_write[name], extent) for name in names if (extent := extents[name])])
    aliases: dict[str, Alias] = {}
    storages: dict[str, TensorToWrite] = {}
    for part in sorted(parts, key=lambda part: place[part[0].name]):  # the order must not depend on addresses
        _share(part, to_write, aliases, storages)
    if not aliases:
        return Sharing(dict(to_write), {}, ())
    kept = {name: tensor for name, tensor in to_write.items() if name not in aliases}
    return Sharing(kept | storages, {name: aliases[name] for name in to_write if name in aliases}, tuple(storages))


def shared(to_write: Mapping[str, TensorToWrite]) -> list[list[str]]:
    """Group names of tensors that have elements in common."""
    return list(_groups(to_write, _extents(to_write), with_expanded=False))


def near_others(to_write: Mapping[str, TensorToWrite]) -> list[str]:
    """Return the names of tensors whose ranges of memory overlap; they may still have no element in common."""
    return list(_near_others(to_write, _unplain_extents(to_write)))


def _extents(to_write: Mapping[str, TensorToWrite]) -> dict[str, Extent | None]:
    """Return where tensors are, without the plain ones that overlap no other, which most are."""
    extents = _unplain_extents(to_write)
    near = _near_others(to_write, extents)
    return extents | {name: to_write[name].extent() for name in near if name not in extents}


def _unplain_extents(to_write: Mapping[str, TensorToWrite]) -> dict[str, Extent | None]:
    return {name: tensor.extent() for name, tensor in to_write.items() if type(tensor) is not TensorInMemory}


def _near_others(to_write: Mapping[str, TensorToWrite], unplain: Mapping[str, Extent | None]) -> Iterator[str]:
    names, starts, stops = [], [], []
    for name, tensor in to_write.items():
        if type(tensor) is TensorInMemory:
            names.append(name)
            starts.append(tensor.address)
            stops.append(tensor.address + tensor.nbytes)
    for name, extent in unplain.items():
        if extent is not None:  # also on other devices: a false alarm costs only a closer look
            names.append(name)
            starts.append(extent.start)
            stops.append(extent.stop)
    return (names[position] for position in crowded(starts, stops))


def _groups(
    to_write: Mapping[str, TensorToWrite], extents: Mapping[str, Extent | None], *, with_expanded: bool
) -> Iterator[list[str]]:
    grouped: set[str] = set()
    for names in overlapping(extents):
        grouped.update(names)
        members = {name: _Member(name, to_write[name], extent) for name in names if (extent := extents[name])}
        yield from with_common_elements({name: member.elements for name, member in members.items()})
    for name, extent in extents.items() if with_expanded else ():
        may_be_expanded = extent and to_write[name].nbytes > extent.stop - extent.start and name not in grouped
        if may_be_expanded and extent and _Member(name, to_write[name], extent).is_expanded:
            yield [name]


def _parts(members: list[_Member]) -> Iterator[list[_Member]]:
    """Split a group into sets that can share: members that can be views, and names of one other tensor."""
    start = min(member.extent.start for member in members)
    views = [member for member in members if member.can_be_view_at(start)]
    if len(views) == len(members):
        yield members
        return
    by_identity: dict[tuple[object, ...], list[_Member]] = {}
    for member in members:
        if not member.can_be_view_at(start):
            by_identity.setdefault(member.identity, []).append(member)
    yield from (equal for equal in by_identity.values() if len(equal) > 1)
    for group in overlapping({member.name: member.extent for member in views}):
        yield from _parts([member for member in views if member.name in group])


def _share(
    members: list[_Member],
    to_write: Mapping[str, TensorToWrite],
    aliases: dict[str, Alias],
    storages: dict[str, TensorToWrite],
) -> None:
    first = members[0]
    if not first.is_expanded and len({member.identity for member in members}) == 1:
        aliases.update((member.name, Alias(first.name)) for member in members[1:])
        return
    start = min(member.extent.start for member in members)
    stop = max(member.extent.stop for member in members)
    owner = next(
        (each for each in members if each.is_plain and (each.extent.start, each.extent.stop) == (start, stop)), None
    )
    if owner is not None:
        name, dtype, shape = owner.name, owner.tensor.dtype, owner.tensor.shape
    else:
        name = _free_name(first.name, to_write)
        storages[name] = _storage(members, start, stop)
        dtype, shape = storages[name].dtype, storages[name].shape
    for member in members:
        if member is not owner:
            aliases[member.name] = member.seen_from(name, dtype, shape, start)


def _free_name(name: str, taken: Mapping[str, TensorToWrite]) -> str:
    name += _SUFFIX
    while name in taken:
        name += "#"
    return name


def _storage(members: list[_Member], start: int, stop: int) -> TensorToWrite:
    """Describe the memory of several tensors as one tensor of their dtype; of bytes if they have several dtypes."""
    first = members[0]
    dtypes = {member.tensor.dtype for member in members}
    step = first.tensor.dtype.itemsize
    do_fit = len(dtypes) == 1 and all((edge - start) % step == 0 for edge in _edges(members, stop))
    dtype = first.tensor.dtype if do_fit else BY_NAME["U8"]
    shape, nbytes = ((stop - start) // dtype.itemsize,), stop - start
    stored = next((member for member in members if isinstance(member.tensor, StoredTensor)), None)
    if stored is not None and isinstance(stored.tensor, StoredTensor):
        source, shift = stored.tensor.source, stored.tensor.span.start - stored.extent.start
        return StoredTensor(dtype, shape, nbytes, source, ByteRange(start + shift, stop + shift))
    return StreamedTensor(dtype, shape, nbytes, lambda: first.tensor.memory(start, stop))


def _edges(members: Iterable[_Member], stop: int) -> Iterator[int]:
    yield stop
    for member in members:
        yield member.extent.start
