"""URIs of keys in hardware, as RFC 7512 defines them. Pure, but for the search of a module by its name.

    pkcs11:token=release;object=signing-key?module-path=/usr/lib/softhsm/libsofthsm2.so&pin-source=/run/pin

Which key: `token`, `serial`, `manufacturer`, `model` or `slot-id`, and `object` or `id`. How to reach it:
`module-path` or `module-name`, and `pin-source`.
"""

from __future__ import annotations

import os
import re
from glob import glob
from typing import Final, NoReturn
from urllib.parse import unquote_to_bytes, urlsplit

import msgspec

from tensorkeep.errors import FormatError, RefusedError, SourceMissingError, UnsupportedError

SCHEME: Final = "pkcs11:"
_FOLDERS: Final = (
    *("/usr/lib64/pkcs11", "/usr/lib/pkcs11", "/usr/lib/*/pkcs11", "/usr/lib/softhsm"),
    *("/usr/local/lib/pkcs11", "/opt/homebrew/lib/pkcs11", "/opt/homebrew/lib"),
)
"""Where systems keep modules."""

_PATH: Final = ("token", "serial", "manufacturer", "model", "slot-id", "object", "id", "type")
_QUERY: Final = ("module-path", "module-name", "pin-source")


class KeyUri(msgspec.Struct, frozen=True):
    """Where a key in hardware is.

    Attributes:
        attributes: Its attributes and its token's, by their names in the URI.
        key_id: Its id, or None.
        module: The path of the module that reaches it.
        pin_file: The path of a file with the PIN, or None.
    """

    attributes: dict[str, str]
    key_id: bytes | None
    module: str
    pin_file: str | None

    def __str__(self) -> str:
        """Which key, without how to reach it."""
        known = [f"{name}={value}" for name, value in self.attributes.items()]
        known += [f"id={self.key_id.hex()}"] if self.key_id is not None else []
        return SCHEME + ";".join(known)


def parse_key_uri(uri: str) -> KeyUri:
    """Parse the URI of one key; no error shows a PIN."""
    if not uri.startswith(SCHEME):
        _refuse(f"{SCHEME}token=...;object=...?module-path=...", "another text")
    path, _, query = uri.removeprefix(SCHEME).partition("?")
    found, how = _attributes(path, ";", _PATH), _attributes(query, "&", _QUERY)
    key_id = found.pop("id", None)
    texts = {name: _text(name, value) for name, value in found.items()}
    if key_id is None and "object" not in texts:
        _refuse("the key's `object` or `id`", "neither")
    if texts.pop("type", "private") != "private":
        _refuse("a private key", "another type")
    if "slot-id" in texts and not re.fullmatch("[0-9]{1,10}", texts["slot-id"]):
        _refuse("a number as `slot-id`", repr(texts["slot-id"]))
    reach = {name: _text(name, value) for name, value in how.items()}
    return KeyUri(texts, key_id, _module(reach), _pin_file(reach))


def _attributes(text: str, separator: str, known: tuple[str, ...]) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for part in filter(None, text.split(separator)):
        name, equals, value = part.partition("=")
        if name == "pin-value":
            raise RefusedError(
                "a PIN is never part of a URI, since other users could see it",
                hint="Give it in a file or an environment variable",
            )
        if name not in known or not equals:
            raise UnsupportedError(
                "the URI has an attribute that is not supported", expected=", ".join(known), found=repr(name)
            )
        if name in found:
            _refuse("each attribute once", f"`{name}` twice")
        found[name] = unquote_to_bytes(value)
    return found


def _text(name: str, value: bytes) -> str:
    try:
        text = value.decode()
    except UnicodeDecodeError:
        _refuse("UTF-8", f"other bytes in `{name}`")
    if "\0" in text:
        _refuse("text", f"a zero byte in `{name}`")
    return text


def _module(reach: dict[str, str]) -> str:
    """Return the path of the module; a relative one could be of any working directory."""
    path, name = reach.get("module-path"), reach.get("module-name")
    if path is not None and not os.path.isabs(path):
        _refuse("an absolute `module-path`", repr(path))
    if path is not None and not os.path.isdir(path):
        return path
    if not name or os.sep in name:
        _refuse("`module-path`, the library of the hardware's maker, or `module-name`", "neither")
    folders = [path] if path else [folder for pattern in _FOLDERS for folder in glob(pattern)]
    wanted = re.compile(rf"(lib)?{re.escape(name)}\.(so|dylib|dll)(\.[0-9.]+)?", re.IGNORECASE).fullmatch
    for folder in filter(os.path.isdir, folders):
        for file in sorted(filter(wanted, os.listdir(folder))):
            return os.path.join(folder, file)
    raise SourceMissingError("no module of this name", path=name, expected=f"a file in {', '.join(folders)}")


def _pin_file(reach: dict[str, str]) -> str | None:
    source = reach.get("pin-source")
    if source is None:
        return None
    path = urlsplit(source).path if source.startswith("file:") else source
    if not os.path.isabs(path):
        _refuse("an absolute path as `pin-source`", "another text")
    return path


def _refuse(expected: str, found: str) -> NoReturn:
    raise FormatError("not the URI of a key", expected=expected, found=found)
