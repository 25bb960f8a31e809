"""Where a checkpoint came from: an in-toto statement, version 1, with SLSA's predicate of provenance. Pure.

    {"_type": "https://in-toto.io/Statement/v1",
     "subject": [{"name": "model.safetensors", "digest": {"tensorkeepHeader": "<64 hexadecimal digits>"}}, …],
     "predicateType": "https://slsa.dev/provenance/v1",
     "predicate": {
       "buildDefinition": {
         "buildType": "urn:tensorkeep:reshard:1",
         "externalParameters": {"cast": "bf16"},
         "resolvedDependencies": [{"name": "…", "uri": "…", "digest": {…}}, …]},
       "runDetails": {"builder": {"id": "urn:tensorkeep", "version": {"tensorkeep": "0.1.0"}}}}}

`tensorkeepHeader` is the BLAKE3 of everything before the data of a safetensors file with digests, which identifies
the whole file; other files have their SHA-256. The statement is not signed itself: `sign` covers it like any file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from tensorkeep.errors import FormatError
from tensorkeep.signing._bundle import strict_json

PROVENANCE_SUFFIX: Final = ".provenance.json"
_TYPE: Final = "https://in-toto.io/Statement/v1"
_PREDICATE_TYPE: Final = "https://slsa.dev/provenance/v1"


class Artifact(msgspec.Struct, frozen=True, omit_defaults=True):
    """A file that was read or written.

    Attributes:
        name: Its name.
        digest: Name of each digest to its hexadecimal digits.
        uri: Where it was; None for what was written.
    """

    name: str
    digest: dict[str, str]
    uri: str | None = None


class _Subjects(msgspec.Struct, frozen=True):
    subject: tuple[Artifact, ...]


def emit_provenance(
    operation: str,
    written: Iterable[Artifact],
    sources: Iterable[Artifact],
    parameters: Mapping[str, object],
    version: str,
) -> bytes:
    """Return the text of a statement: which files an operation made, and from what."""
    definition = {
        "buildType": f"urn:tensorkeep:{operation}:1",
        "externalParameters": dict(parameters),
        "resolvedDependencies": list(sources),
    }
    statement = {
        "_type": _TYPE,
        "subject": list(written),
        "predicateType": _PREDICATE_TYPE,
        "predicate": {
            "buildDefinition": definition,
            "runDetails": {"builder": {"id": "urn:tensorkeep", "version": {"tensorkeep": version}}},
        },
    }
    return msgspec.json.format(msgspec.json.encode(statement), indent=2) + b"\n"


def is_provenance(name: str) -> bool:
    """Say whether a file is a statement of provenance by its name."""
    return name.endswith(PROVENANCE_SUFFIX)


def provenance_subjects(text: bytes) -> frozenset[str]:
    """Return the names of the files that a statement is about; FormatError if it is another text."""
    try:
        statement = strict_json(text)
        if statement["_type"] != _TYPE or statement["predicateType"] != _PREDICATE_TYPE:
            raise FormatError("not a statement of provenance")
        return frozenset(artifact.name for artifact in msgspec.convert(statement, _Subjects).subject)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise FormatError("not a statement of provenance", found=str(error)) from None
