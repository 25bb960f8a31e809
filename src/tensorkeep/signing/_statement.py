"""What a signature says: an in-toto statement, version 1, as OpenSSF Model Signing 1.0 defines it. Pure.

    {"_type": "https://in-toto.io/Statement/v1",
     "subject": [{"name": "<directory>", "digest": {"sha256": "<SHA-256 of all resources' digests>"}}],
     "predicateType": "https://model_signing/signature/v1.0",
     "predicate": {
       "serialization": {"method": "files", "hash_type": "sha256", "allow_symlinks": false, "ignore_paths": […]},
       "resources": [{"name": "model.safetensors", "algorithm": "sha256", "digest": "<hexadecimal digits>"}, …],
       "tensorkeep": {"version": 1, "headers": {"model.safetensors": {"nbytes": …, "blake3": "<64 digits>"}}}}}

Each resource is a file; the only resource of a single file is named `.`. The member `tensorkeep` is ours: the BLAKE3
of everything before the data of each safetensors file that has digests. It proves every tensor without reading the
file whole. Other readers ignore it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, NoReturn

import msgspec

from tensorkeep.errors import FormatError, LimitError, UnsupportedError
from tensorkeep.paths import is_inside
from tensorkeep.signing._bundle import strict_json

ONLY_FILE: Final = "."
"""The name of the resource in a signature of a single file."""

_TYPE: Final = "https://in-toto.io/Statement/v1"
_PREDICATE_TYPE: Final = "https://model_signing/signature/v1.0"
_EARLY_PREDICATE_TYPE: Final = "https://model_signing/Digests/v0.1"
"""Of model-signing 0.2: each file is a subject, and the predicate says nothing."""

_VERSION: Final = 1
_DIGEST_NBYTES: Final = {"sha256": 32, "blake2b": 64, "blake3": 32}

_Digest = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$", max_length=64)]
_Nbytes = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class SignedHeader(msgspec.Struct, frozen=True):
    """What is signed of a safetensors file with digests.

    Attributes:
        nbytes: Size of the file in bytes.
        blake3: BLAKE3 of everything before the data, as 64 hexadecimal digits.
    """

    nbytes: _Nbytes
    blake3: _Digest


class SignedFile(msgspec.Struct, frozen=True):
    """What is signed of one file.

    Attributes:
        algorithm: `"sha256"`, `"blake2b"` or `"blake3"`.
        digest: Digest of the whole file.
        header: What proves its tensors one by one, or None.
    """

    algorithm: str
    digest: bytes
    header: SignedHeader | None = None


class Statement(msgspec.Struct, frozen=True):
    """Which files were signed.

    Attributes:
        name: Name of the model, for people.
        files: Relative name of each file, or `"."` for a single file, to what is signed of it.
        ignored: Relative names of files and directories that the signer left out.
        allows_links: Whether the signer followed symbolic links.
    """

    name: str
    files: Mapping[str, SignedFile]
    ignored: tuple[str, ...] = ()
    allows_links: bool = False


class _Subject(msgspec.Struct, frozen=True):
    name: str
    digest: dict[str, str]


class _Serialization(msgspec.Struct, frozen=True):
    method: str
    hash_type: str
    allow_symlinks: bool
    ignore_paths: tuple[str, ...] = ()


class _Resource(msgspec.Struct, frozen=True):
    name: str
    algorithm: str
    digest: str


class _Section(msgspec.Struct, frozen=True):
    version: int
    headers: dict[str, SignedHeader]


class _Predicate(msgspec.Struct, frozen=True):
    serialization: _Serialization
    resources: tuple[_Resource, ...]
    tensorkeep: Any = None


class _Document(msgspec.Struct, frozen=True, rename={"type": "_type", "predicate_type": "predicateType"}):
    type: str
    subject: tuple[_Subject, ...]
    predicate_type: str
    predicate: Any


def emit_statement(statement: Statement) -> bytes:
    """Return the text of a statement, its files sorted by the parts of their names."""
    files = {name: statement.files[name] for name in sorted(statement.files, key=lambda name: name.split("/"))}
    serialization = _Serialization("files", "sha256", statement.allows_links, statement.ignored)
    resources = tuple(_Resource(name, file.algorithm, file.digest.hex()) for name, file in files.items())
    headers = {name: file.header for name, file in files.items() if file.header is not None}
    section = _Section(_VERSION, headers) if headers else None
    predicate = msgspec.to_builtins(_Predicate(serialization, resources, section))
    if section is None:
        del predicate["tensorkeep"]
    subject = {"name": statement.name, "digest": {"sha256": _digest_of_all(files)}}
    return msgspec.json.encode({
        "_type": _TYPE,
        "subject": [subject],
        "predicateType": _PREDICATE_TYPE,
        "predicate": predicate,
    })


def parse_statement(text: bytes, path: str) -> Statement:
    """Parse the payload of a signature, and check that it agrees with itself."""
    try:
        document = msgspec.convert(strict_json(text), _Document)
        _require(document.type == _TYPE, _TYPE, repr(document.type))
        if document.predicate_type == _EARLY_PREDICATE_TYPE:
            resources = [_Resource(each.name, "sha256", each.digest["sha256"]) for each in document.subject]
            return Statement("", _files_of(resources))
        _require(document.predicate_type == _PREDICATE_TYPE, _PREDICATE_TYPE, repr(document.predicate_type))
        predicate = msgspec.convert(document.predicate, _Predicate)
        _require(len(document.subject) == 1, "exactly one subject", str(len(document.subject)))
        _require_files(predicate.serialization)
        files = _files_of(predicate.resources, _headers_of(predicate.tensorkeep))
        subject = document.subject[0]
        expected = {"sha256": _digest_of_all(files)}
        _require(subject.digest == expected, f"the subject's digest {expected['sha256']}", str(subject.digest))
    except (FormatError, LimitError, UnsupportedError) as error:
        raise error.with_fields(path=path) from None
    except (ValueError, KeyError, RecursionError) as error:  # of JSON, UTF-8 and msgspec
        raise FormatError("the signature's statement is malformed", path=path, found=str(error)) from None
    ignored = tuple(name.rstrip("/") for name in predicate.serialization.ignore_paths)
    return Statement(subject.name, files, ignored, predicate.serialization.allow_symlinks)


def _require_files(serialization: _Serialization) -> None:
    if serialization.method != "files":
        raise UnsupportedError(
            "the signature does not list whole files",
            expected='the method "files"',
            found=repr(serialization.method),
            hint="Sign the model again, file by file, as model-signing does by default",
        )


def _files_of(
    resources: Sequence[_Resource], headers: Mapping[str, SignedHeader] | None = None
) -> dict[str, SignedFile]:
    headers = headers or {}
    files: dict[str, SignedFile] = {}
    for resource in resources:
        name, nbytes = resource.name, _DIGEST_NBYTES.get(resource.algorithm)
        _require(name == ONLY_FILE or is_inside(name), "names of files inside the directory", repr(name))
        _require(name not in files, "each file once", repr(name))
        _require(nbytes is not None, " or ".join(_DIGEST_NBYTES), repr(resource.algorithm))
        digest = bytes.fromhex(resource.digest)
        _require(len(digest) == nbytes and digest.hex() == resource.digest, f"{nbytes} bytes", resource.digest)
        files[name] = SignedFile(resource.algorithm, digest, headers.get(name))
    _require(bool(files), "at least one file", "none")
    _require(ONLY_FILE not in files or len(files) == 1, "one file or a directory", "both")
    _require(headers.keys() <= files.keys(), "headers of signed files", ", ".join(sorted(headers.keys() - files)))
    return files


def _headers_of(section: Any) -> dict[str, SignedHeader]:
    """Return the headers; those of a later version are left out, so that their files must be hashed whole."""
    if section is None or (isinstance(section, dict) and section.get("version") not in {_VERSION, None}):
        return {}
    return msgspec.convert(section, _Section).headers


def _digest_of_all(files: Mapping[str, SignedFile]) -> str:
    return hashlib.sha256(b"".join(file.digest for file in files.values())).hexdigest()


def _require(condition: object, expected: str, found: str) -> None:
    if not condition:
        _refuse(expected, found)


def _refuse(expected: str, found: str) -> NoReturn:
    raise FormatError("the signature's statement is malformed", expected=expected, found=found)
