"""`tensorkeep keygen`: make a key to sign with."""

from __future__ import annotations

from typing import Annotated, Final

import typer

import tensorkeep
from tensorkeep.cli.commands.signing._password import PasswordFile, asked_password, known_password
from tensorkeep.cli.inputs import AsJson
from tensorkeep.cli.terminal import json_lines, show, show_text
from tensorkeep.errors import RefusedError, UnsupportedError
from tensorkeep.variables import KEY_PASSWORD

_AES: Final = "aes-256"


def keygen(
    path: Annotated[
        str,
        typer.Argument(metavar="KEY", help="File of the private key, such as release.pem.", show_default=False),
    ],
    *,
    kind: Annotated[
        str,
        typer.Option(
            "--kind",
            metavar="KIND",
            help="ecdsa-p256 (which every verifier knows) or ed25519 to sign; aes-256 to encrypt.",
        ),
    ] = "ecdsa-p256",
    encrypt: Annotated[bool, typer.Option("--encrypt", help="Protect the private key with a password.")] = False,
    password_file: PasswordFile = None,
    as_json: AsJson = False,
) -> None:
    """Make a key to sign checkpoints with, or to encrypt them.

    Only you can read the private key. The public key, release.pub beside release.pem, is what others pass to
    `--trust`. No existing file is replaced.

    With a password from a file or the environment, or with --encrypt, the private key is encrypted.

    With --kind aes-256, a single key file encrypts and decrypts; it cannot have a password.
    """
    if kind == _AES:
        if encrypt or password_file is not None:
            raise RefusedError(
                f"a key of kind {_AES} has no password", hint="Leave out --encrypt and --password-file"
            )
        key = tensorkeep.encryption.new_key(path)
        if as_json:
            show_text(json_lines({"key": path, "id": key.id}))
        else:
            show([[("key ", ""), (path, "title")]])
        return
    kinds = (*tensorkeep.signing.KEY_KINDS, _AES)
    if kind not in kinds:
        raise UnsupportedError("no such kind of key", expected=" or ".join(kinds), found=repr(kind))
    password = known_password(password_file)
    if encrypt and not password:
        password = asked_password(twice=True)
        if not password:
            raise RefusedError(
                "there is no password to encrypt the key with", hint=f"Give --password-file, or set {KEY_PASSWORD}"
            )
    private = tensorkeep.signing.PrivateKey.generate(kind)  # type: ignore[arg-type]
    public = private.write(path, password)
    if as_json:
        members = {"private": path, "public": public, "id": private.public.id, "is_encrypted": bool(password)}
        show_text(json_lines(members))
    else:
        show([[("private key ", ""), (path, "title")], [("public key ", ""), (public, "title")]])
