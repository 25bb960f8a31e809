"""Keys of encrypted checkpoints: their places as options, never a key itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

import tensorkeep
from tensorkeep.cli.inputs._option_group import OptionGroup
from tensorkeep.on_demand import imported

if TYPE_CHECKING:
    from tensorkeep.encryption import Encryption, Key
    from tensorkeep.kinds import Opened

_OPEN_WITH: Final = "tensorkeep.checkpoint:open_with"
_OPTIONS: Final = "tensorkeep.kinds:OpenOptions"
_ENV, _COMMAND = "env:", "command:"


class KeyOptions(OptionGroup, frozen=True, kw_only=True):
    """Where the key of what is read is."""

    key_file: Annotated[
        str | None,
        typer.Option("--key-file", metavar="FILE", help="The file with the key, if the checkpoint is encrypted."),
    ] = None
    key_env: Annotated[
        str | None, typer.Option("--key-env", metavar="NAME", help="The environment variable with the key.")
    ] = None
    key_command: Annotated[
        str | None, typer.Option("--key-command", metavar="COMMAND", help="A program that prints the key.")
    ] = None

    def keys(self) -> list[Key] | None:
        """Read the keys; None if none is named."""
        key = tensorkeep.Key
        found = [
            *([] if self.key_file is None else [key.from_file(self.key_file)]),
            *([] if self.key_env is None else [key.from_env(self.key_env)]),
            *([] if self.key_command is None else [key.from_command(self.key_command)]),
        ]
        return found or None


def open_any(path: str, keys: Sequence[Key] | None, *, trust: str | None = None, **options: Any) -> Opened:
    """Open one of several checkpoints; a key does not mean that this one is encrypted."""
    given = tensorkeep.encryption.Keys.given(keys)
    optional = None if given is None else given.optional()
    opened: Opened = imported(_OPEN_WITH)(path, imported(_OPTIONS)(keys=optional, **options), trust)
    try:
        opened.require_names()
    except BaseException:
        opened.close()
        raise
    return opened


class EncryptOptions(OptionGroup, frozen=True, kw_only=True):
    """How what is written is encrypted."""

    encrypt: Annotated[
        str | None,
        typer.Option(
            "--encrypt", metavar="KEY", help="Encrypt with the key in this file, or from env:NAME or command:COMMAND."
        ),
    ] = None
    show_names: Annotated[
        bool, typer.Option("--show-names", help="Leave names, dtypes and shapes visible; needs --encrypt.")
    ] = False

    def encryption(self) -> Encryption | None:
        """Read the key; None if nothing is to be encrypted."""
        if self.encrypt is None:
            if self.show_names:
                raise typer.BadParameter("needs --encrypt", param_hint="'--show-names'")
            return None
        return tensorkeep.Encryption(_key(self.encrypt), shows_names=self.show_names)


def keys_of(encryption: Encryption | None) -> list[Key] | None:
    """Return the key that opens what was just written; None if it is not encrypted."""
    return None if encryption is None else [encryption.key]


def _key(text: str) -> Key:
    if text.startswith(_ENV):
        return tensorkeep.Key.from_env(text.removeprefix(_ENV))
    if text.startswith(_COMMAND):
        return tensorkeep.Key.from_command(text.removeprefix(_COMMAND))
    return tensorkeep.Key.from_file(text)
