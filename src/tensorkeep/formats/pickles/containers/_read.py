"""A file of pickles in any form: its value, and where the bytes of its storages are."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Final

from tensorkeep.errors import ArchiveError, LimitError, PickleError, TensorkeepError, UnsupportedError
from tensorkeep.formats._sniff import SNIFF_NBYTES, sniff
from tensorkeep.formats.archives import Archive, Member, read_archive, read_member
from tensorkeep.formats.pickles.containers._legacy_stream import read_legacy
from tensorkeep.formats.pickles.containers._outline import has_outline, run_outline
from tensorkeep.formats.pickles.containers._tar import read_tar
from tensorkeep.formats.pickles.limits import DEFAULT_LIMITS, PickleLimits
from tensorkeep.formats.pickles.machine import Context, Dangerous, run_pickle
from tensorkeep.formats.pickles.values import Form, PickleDocument, StorageRecord, short_repr
from tensorkeep.transport import ByteRange, ByteSource, MemorySource

_ZIP_START: Final = b"PK\x03\x04"
_LEGACY_START = re.compile(rb"\x80[\x02-\x05](?:\x95.{8})?\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19\.", re.DOTALL)
_PICKLE_START = re.compile(rb"\x80[\x02-\x05]")
_SAFETENSORS_BRACE: Final = b"\0\0{"
"""Bytes 6 to 8 of a safetensors file, whose first bytes may look like any other form."""

_TAR_MAGIC: Final = slice(257, 262)
_MAX_WORD_NBYTES: Final = 100
"""Most bytes of a member that contains one word."""


def is_pickled(source: ByteSource) -> bool:
    """Say whether `read_pickle` may read a file, by its first bytes."""
    head = bytes(source.read(ByteRange(0, min(SNIFF_NBYTES, source.nbytes))))
    if head[6:9] == _SAFETENSORS_BRACE:
        return False
    return head.startswith(_ZIP_START) or _PICKLE_START.match(head) is not None or head[_TAR_MAGIC] == b"ustar"


def read_pickle(
    source: ByteSource,
    span: ByteRange | None = None,
    *,
    strict: bool = False,
    dangerous: Dangerous = "refuse",
    limits: PickleLimits = DEFAULT_LIMITS,
) -> PickleDocument:
    """Read what `torch.save`, `torch.jit.save` or `pickle.dump` wrote, without running anything."""

    def begin() -> Context:
        context = Context(strict=strict, dangerous=dangerous, limits=limits)
        context.read_embedded = partial(_read_embedded, limits)
        return context

    try:
        return _read(source, span, begin)
    except TensorkeepError as error:
        if error.path is not None:
            raise
        raise error.with_fields(path=source.name) from None


def _read(source: ByteSource, span: ByteRange | None, begin: Callable[[], Context]) -> PickleDocument:
    whole = span or ByteRange(0, source.nbytes)
    head = bytes(source.read(ByteRange(whole.start, min(whole.stop, whole.start + SNIFF_NBYTES))))
    if head.startswith(_ZIP_START):
        _refuse_other_zip(head)
        return _read_zip(source, read_archive(source, span), begin())
    if span is not None:
        raise ArchiveError("a part of the file is not a zip archive", found=f"{head[:4]!r}")
    if _LEGACY_START.match(head):
        return read_legacy(source, begin())
    if _PICKLE_START.match(head):
        return _read_bare(source, begin)
    if head[_TAR_MAGIC] == b"ustar":
        return read_tar(source, begin())
    sniffed = sniff(head)
    raise PickleError(
        "not a file of pickles",
        expected="a file written by torch.save or pickle.dump",
        found=sniffed.what if sniffed else f"a file that starts with {head[:8]!r}",
        hint=sniffed.hint if sniffed else None,
    )


def _refuse_other_zip(head: bytes) -> None:
    """Refuse zip archives of other programs by the name of their first member."""
    n_bytes = int.from_bytes(head[26:28], "little")
    first = head[30 : 30 + n_bytes]
    if first.endswith(b".npy"):
        hint = "tensorkeep.open reads its arrays"
        raise UnsupportedError(
            "a NumPy archive (.npz) instead of a torch.save archive", found=short_repr(first), hint=hint
        )
    if b"/" not in first and 0 < len(first) == n_bytes:  # a name that is cut off is damage
        raise UnsupportedError(
            "a zip archive that torch.save did not write",
            expected="all members in a folder",
            found=short_repr(first),
            hint="If it holds checkpoints, unpack it and open them",
        )


def _read_zip(source: ByteSource, archive: Archive, context: Context) -> PickleDocument:
    member = archive.members.get("data.pkl")
    if member is None:
        raise UnsupportedError(
            "not a torch.save archive",
            expected="a member data.pkl",
            found=", ".join(list(archive.members)[:5]) or "nothing",
        )
    value = _run_whole(read_member(source, member, context.limits.max_nbytes), context)
    members = {key: _member_of(storage, archive) for key, storage in context.stored.items()}
    form: Form = "torchscript" if "constants.pkl" in archive.members else "zip"
    return PickleDocument(
        form,
        value,
        context.storages,
        {key: member.span for key, member in members.items()},
        is_big_endian=_is_big_endian(source, archive),
        crcs={key: member.crc for key, member in members.items() if member.crc},
        dangers=context.dangers,
        embedded=context.embedded,
    )


def _member_of(storage: StorageRecord, archive: Archive) -> Member:
    """Return the member that contains a storage; it must have the size that the pickle declares."""
    name = f"data/{storage.key}"
    member = archive.members.get(name)
    if member is None:
        raise PickleError(
            f"storage {short_repr(storage.key)} is not in the archive", expected=f"a member {name:.100}"
        )
    if len(member.span) != storage.nbytes:
        raise PickleError(
            f"storage {short_repr(storage.key)} does not have the size that the pickle declares",
            expected=f"{storage.nbytes:,} bytes for {storage.n_elements:,} of {storage.dtype}",
            found=f"{len(member.span):,}",
        )
    return member


def _is_big_endian(source: ByteSource, archive: Archive) -> bool:
    member = archive.members.get("byteorder")
    order = b"little" if member is None else read_member(source, member, _MAX_WORD_NBYTES).strip()
    if order not in {b"little", b"big"}:
        raise PickleError("the byte order is neither little nor big", found=f"{order!r}")
    return order == b"big"


def _read_bare(source: ByteSource, begin: Callable[[], Context]) -> PickleDocument:
    """Read a bare pickle: large arrays stay in the file, unless the pickle does more with long values of bytes."""
    context = begin()
    is_small = source.nbytes <= context.limits.max_nbytes
    if has_outline(source):
        try:
            return _bare_document(run_outline(source, context), context)
        except (PickleError, LimitError):
            if not is_small:
                raise
        context = begin()
    if not is_small:
        raise LimitError(
            "a pickle is too large",
            expected=f"at most {context.limits.max_nbytes:,} bytes; more only for arrays since protocol 3",
            found=f"{source.nbytes:,}",
            hint="Protocol 2 writes arrays as text: save again with protocol=4, or in several files",
        )
    return _bare_document(_run_whole(bytes(source.read(ByteRange(0, source.nbytes))), context), context)


def _bare_document(value: object, context: Context) -> PickleDocument:
    if context.stored:
        raise PickleError(
            "a bare pickle refers to a storage, which it cannot have", found=short_repr(next(iter(context.stored)))
        )
    return PickleDocument(
        "pickle",
        value,
        context.storages,
        {},
        dangers=context.dangers,
        embedded=context.embedded,
        places=context.places or {},
    )


def _read_embedded(limits: PickleLimits, data: bytes) -> tuple[StorageRecord, bytes]:
    """Read the file inside a pickle that is one storage. Its own pickles cannot contain another such file."""
    document = read_legacy(MemorySource(data), Context(strict=True, limits=limits))
    storage = document.value
    if type(storage) is not StorageRecord or len(document.spans) != 1:
        raise PickleError("an embedded storage is not a storage", found=type(storage).__name__)
    span = document.spans[storage.key]
    return storage, data[span.start : span.stop]


def _run_whole(data: bytes, context: Context) -> object:
    value, stop = run_pickle(data, 0, context)
    if stop != len(data):
        raise PickleError("bytes follow the end of the pickle", expected="none", found=f"{len(data) - stop:,}")
    return value
