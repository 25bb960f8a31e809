"""The password of a key: from a file, the environment or a prompt, never from the command line."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from tensorkeep.errors import as_transport_error
from tensorkeep.variables import KEY_PASSWORD

PasswordFile = Annotated[
    str | None,
    typer.Option(
        "--password-file",
        metavar="FILE",
        help=f"File with the key's password or PIN. By default, {KEY_PASSWORD} is used, or you are asked.",
    ),
]


def known_password(file: str | None) -> str | None:
    """Return the password that a file or the environment has, perhaps an empty one; None if neither has any."""
    if file is None:
        return os.environ.get(KEY_PASSWORD)
    with as_transport_error("could not read the password", file):
        return Path(file).read_text(encoding="utf-8").rstrip("\r\n")


def asked_password(what: str = "Password of the key", *, twice: bool = False) -> str | None:
    """Ask for a password on a terminal; None without a terminal."""
    if not sys.stdin.isatty():
        return None
    password: str = typer.prompt(what, hide_input=True, confirmation_prompt=twice, err=True)
    return password
