"""What one rank does in files that all ranks see: it writes its parts, and digests the tensors assigned to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tensorkeep.arrays import TensorToWrite
from tensorkeep.checkpoint.ranks._assignments import FillAssignment, PartToWrite, TensorToDigest
from tensorkeep.checkpoint.ranks._fetched_parts import FetchedParts
from tensorkeep.checkpoint.ranks._parts import Part, nbytes_of, write_block
from tensorkeep.checkpoint.saving import Beat, Reservation, ReservedFiles
from tensorkeep.digests import new_hasher
from tensorkeep.tensors import Digesting
from tensorkeep.transport import ByteRange, open_source


def write_parts(parts: Sequence[Part], assigned: FillAssignment, *, durable: bool, beat: Beat) -> dict[str, bytes]:
    """Write the parts of this rank, and return the digests of tensors that it has whole."""
    with ReservedFiles(assigned.files, beat, durable=durable) as files, Digesting() as digesting:
        in_order = sorted(assigned.parts, key=lambda part: (part.place.file, part.place.start))
        fetched = FetchedParts(files, beat)
        whole: list[str] = []
        for each in in_order:
            part = parts[each.item]
            on_device = part.on_device()
            if on_device is not None:
                fetched.add(part, on_device, each)
                continue
            _write(part, each, files, digesting, beat)
            if each.is_whole:
                whole.append(each.name)
        fetched.write()
        files.sync()
        return fetched.digests | dict(zip(whole, digesting.digests(), strict=True))


def _write(part: Part, assigned: PartToWrite, files: ReservedFiles, digesting: Digesting, beat: Beat) -> None:
    place = assigned.place
    if assigned.is_whole:
        files.fill(place, nbytes_of(part), (content for _, content in part.blocks()), digesting)
        return
    with files.using(place.file) as file:
        for block, content in part.blocks():
            write_block(file, place.start, part.shape, block, content, beat)


def write_own(
    reserved: Reservation, to_write: Mapping[str, TensorToWrite], *, durable: bool, beat: Beat
) -> dict[str, bytes]:
    """Write the tensors that the first rank got with values that are not tensors, and return their digests."""
    with ReservedFiles(reserved.files, beat, durable=durable) as files, Digesting() as digesting:
        for name, tensor in to_write.items():
            files.fill(reserved.places[name], tensor.nbytes, tensor.buffers(), digesting)
        files.sync()
        return dict(zip(to_write, digesting.digests(), strict=True))


def digest_parts(assigned: FillAssignment, beat: Beat) -> dict[str, bytes]:
    """Return the digests of tensors that several ranks wrote; called when all have written."""
    return {tensor.name: _digest(assigned, tensor, beat) for tensor in assigned.digests}


def _digest(assigned: FillAssignment, tensor: TensorToDigest, beat: Beat) -> bytes:
    hasher = new_hasher()
    source = open_source(assigned.files[tensor.place.file].path)
    try:
        start = tensor.place.start
        for piece in source.pieces(ByteRange(start, start + tensor.nbytes)):
            hasher.update(piece)
            beat()
    finally:
        source.close()
    return hasher.digest()
