"""Names of signatures, and which files of a directory they cover."""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from tensorkeep.errors import RefusedError, TensorkeepError, UnsupportedError, as_transport_error
from tensorkeep.limits import MAX_KEY_NBYTES, MAX_SIGNATURE_NBYTES
from tensorkeep.paths import is_portable
from tensorkeep.signing._bundle import parse_bundle
from tensorkeep.signing._provenance import is_provenance, provenance_subjects
from tensorkeep.signing._statement import parse_statement
from tensorkeep.transport import ByteRange, is_remote, join, open_source

SUFFIX: Final = ".sig"
USUAL: Final = "model" + SUFFIX
"""The signature of a directory; others beside it have longer names."""

IGNORED: Final = (".git", ".gitattributes", ".github", ".gitignore", ".cache/huggingface")
"""What other programs keep beside a model; model-signing also leaves out all but the last."""

_has_private_key = re.compile(rb"^-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY-----", re.MULTILINE).search

_OURS: Final = ".tensorkeep-"
"""Part of the hidden names that running and killed saves of ours leave in a directory."""


def is_signature(name: str) -> bool:
    """Say whether a file of a directory is a signature by its name."""
    return name.endswith(SUFFIX) and "/" not in name


def holds_signature(directory: str, name: str) -> bool:
    """Say whether a file is a signature by its name and its content, so that no signature covers it."""
    if is_signature(name):
        with suppress(TensorkeepError, OSError):
            parse_bundle(read_signature(join(directory, name)), name)
            return True
    return False


def is_ignored(name: str, ignored: Iterable[str] = IGNORED) -> bool:
    """Say whether a file is left out: it is in one of these directories, or is one of these files."""
    is_ours = any(part.startswith(".") and _OURS in part for part in name.split("/"))
    return is_ours or any(name == other or name.startswith(f"{other}/") for other in ignored)


def names_to_sign(directory: str, signature: str, *, links: bool = False) -> list[str]:
    """Return the relative names of all files that a signature of a directory covers.

    Other signatures are left out, and so is the file of this one. Links to files are followed if `links` is set; all
    others are errors.
    """
    names = [
        name
        for name in files_below(directory)
        if name != signature and not holds_signature(directory, name) and not is_ignored(name)
    ]
    spelled: dict[str, str] = {}
    for name in names:
        path = os.path.join(directory, name)
        if os.path.islink(path):
            _refuse_link(path, links)
        other = spelled.setdefault(_folded(name), name)
        if not is_portable(name) or other != name:
            raise UnsupportedError(
                "a file's name is not portable to every system",
                path=path,
                found=None if other == name else f"`{other}`, which is the same name on some",
                hint="Rename or remove it before signing",
            )
        _refuse_private_key(path)
    return names


def files_below(directory: str) -> Iterator[str]:
    """Yield the relative name of each file and link below a directory, except what is ignored."""

    def fail(error: OSError) -> None:
        raise error

    with as_transport_error("could not read the directory", directory):
        for parent, folders, names in os.walk(directory, onerror=fail):
            inner = os.path.relpath(parent, directory)
            base = "" if inner == os.curdir else f"{inner.replace(os.sep, '/')}/"
            folders[:] = sorted(name for name in folders if not is_ignored(base + name))
            linked = [name for name in folders if os.path.islink(os.path.join(parent, name))]
            for name in sorted([*names, *linked]):
                yield base + name


def has_link(directory: str, name: str) -> bool:
    """Whether a link leads to a local file, or to a folder between it and a directory."""
    if is_remote(directory):
        return False
    parts = name.split("/")
    return any(os.path.islink(os.path.join(directory, *parts[: n + 1])) for n in range(len(parts)))


def _refuse_link(path: str, links: bool) -> None:
    if os.path.isdir(path):
        found, hint = "a link to a directory", "Replace it by that directory"
    elif not links:
        found, hint = "a link to a file", "links=True (--links) follows links to files"
    else:
        return
    raise UnsupportedError(
        "a signature covers files, not symbolic links", path=path, expected="a file", found=found, hint=hint
    )


def _folded(name: str) -> str:
    """Return a text that two names share if some systems take them for one: in case or in composed letters."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


def _refuse_private_key(path: str) -> None:
    """Refuse a private key: what is signed is meant to be published."""
    if os.path.getsize(path) <= MAX_KEY_NBYTES and _has_private_key(Path(path).read_bytes()):
        raise RefusedError(
            "a private key is not signed as a part of a model",
            path=path,
            hint="Move it out of the directory, so that it is not published",
        )


def stale_signatures(directory: str, changed: Iterable[str]) -> list[str]:
    """Return the signatures and statements of provenance in a directory that name a file which changes.

    They no longer apply once it has changed. Files that are only named like them stay.
    """
    names = frozenset(changed)
    try:
        present = sorted(filter(is_about_others, os.listdir(directory or os.curdir)))
    except OSError:
        return []
    return [name for name in present if _says_of(directory, name) & names]


def _says_of(directory: str, name: str) -> frozenset[str]:
    """Return the files that a signature or statement of provenance names; none for any other file."""
    with suppress(TensorkeepError, OSError):
        return covered_names(read_signature(os.path.join(directory, name)), name)
    return frozenset()


def is_about_others(name: str) -> bool:
    """Say whether a file is a signature or a statement of provenance by its name."""
    return is_signature(name) or is_provenance(name)


def covered_names(text: bytes, name: str) -> frozenset[str]:
    """Return the files that a signature or statement of provenance names, proven or not.

    Args:
        text: Its content.
        name: Its file name, which says what the signature of a single file is about.
    """
    if is_provenance(name):
        return provenance_subjects(text)
    files = parse_statement(parse_bundle(text, name).payload, name).files
    return frozenset(files) if "." not in files else frozenset({signed_file_of(name)})


def signed_file_of(name: str) -> str:
    """Return the name of the single file that a signature is of: `w.safetensors` of `w.safetensors.1f2e3d4c.sig`."""
    stem = name.removesuffix(SUFFIX)
    before, _, key = stem.rpartition(".")
    return before if before and len(key) == _ID_LENGTH and not set(key) - set("0123456789abcdef") else stem


_ID_LENGTH: Final = 8
_NO_KEY: Final = "0" * _ID_LENGTH
"""In the name of a signature by an identity."""


def signature_names(base: str, key_id: str | None) -> tuple[str, str]:
    """Return a signature's usual name, and its name if another signer's has that; `base` is `model` or a file."""
    return base + SUFFIX, f"{base}.{(key_id or _NO_KEY)[:_ID_LENGTH]}{SUFFIX}"


def read_signature(path: str) -> bytes:
    """Read the text of a signature."""
    source = open_source(path, backend="pread")
    return bytes(source.read(ByteRange(0, min(source.nbytes, MAX_SIGNATURE_NBYTES + 1))))
