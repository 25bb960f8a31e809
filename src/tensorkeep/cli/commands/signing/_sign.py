"""`tensorkeep sign`: sign a checkpoint."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

import tensorkeep
from tensorkeep.cli.commands.signing._password import PasswordFile, asked_password, known_password
from tensorkeep.cli.inputs import AsJson
from tensorkeep.cli.terminal import json_lines, progress_bar, show, show_text
from tensorkeep.texts import counted


def sign(
    path: Annotated[
        str,
        typer.Argument(
            metavar="PATH",
            help="A directory, which is signed with all its files, or a single file.",
            show_default=False,
        ),
    ],
    *,
    key: Annotated[
        str | None, typer.Option("--key", metavar="FILE", help="The private key, as `tensorkeep keygen` writes it.")
    ] = None,
    pkcs11: Annotated[
        str | None,
        typer.Option(
            "--pkcs11",
            metavar="URI",
            help="A key in hardware, such as 'pkcs11:token=T;object=KEY?module-path=/usr/lib/MODULE.so'.",
        ),
    ] = None,
    keyless: Annotated[
        bool, typer.Option("--keyless", help="Sign with your identity, through Sigstore; needs a network.")
    ] = False,
    certificate: Annotated[
        str | None,
        typer.Option(
            "--certificate",
            metavar="FILE",
            help="Certificates in PEM: first the key's, then each authority's behind it.",
        ),
    ] = None,
    password_file: PasswordFile = None,
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="FILE", help="Where to write the signature; by default model.sig."),
    ] = None,
    links: Annotated[bool, typer.Option("--links", help="Follow symbolic links to files.")] = False,
    rehash: Annotated[
        bool, typer.Option("--rehash", help="Read all files, even if an index has their SHA-256.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Sign a checkpoint, so that others can check who published it.

    The signature is a separate file in the format of OpenSSF Model Signing: `model.sig` in a directory, or FILE.sig
    beside a file. Signatures by other keys are kept. Others check it with `tensorkeep verify PATH --trust KEY.pub` or
    `model_signing verify key`.
    """
    if (key is not None) + (pkcs11 is not None) + keyless != 1:
        raise typer.BadParameter("give one of them", param_hint="'--key', '--pkcs11' or '--keyless'")
    if keyless and certificate is not None:
        raise typer.BadParameter("give one of them", param_hint="'--certificate' or '--keyless'")
    with progress_bar("hashing") as progress:
        if keyless:
            signed = tensorkeep.signing.sign_keyless(
                path, output=output, links=links, rehash=rehash, progress=progress
            )
        else:
            signed = tensorkeep.signing.sign(
                path,
                _unlocked(key, password_file) if key is not None else _in_hardware(pkcs11 or "", password_file),
                certificate=certificate,
                output=output,
                links=links,
                rehash=rehash,
                progress=progress,
            )
    if as_json:
        members = {name: getattr(signed, name) for name in ("path", "signer", "n_files", "n_recorded")}
        show_text(json_lines(members))
    else:
        read = f", {signed.n_recorded:,} of them by the SHA-256 in an index" if signed.n_recorded else ""
        show([[(f"signed {counted(signed.n_files, 'file')}{read}: ", ""), (signed.path, "title")]])


def _unlocked(key: str, password_file: str | None) -> tensorkeep.signing.PrivateKey:
    """Read the key; ask for its password if it needs one and neither a file nor the environment has it."""
    password = known_password(password_file)
    if password is None and tensorkeep.signing.is_encrypted(key):
        password = asked_password()
    return tensorkeep.signing.PrivateKey.read(key, password)


def _in_hardware(uri: str, password_file: str | None) -> tensorkeep.signing.HardwareKey:
    """Find the key; ask for the PIN if the token needs one and no file or variable has it."""
    pin = known_password(password_file)
    return tensorkeep.signing.HardwareKey.open(uri, pin or partial(asked_password, "PIN of the token"))
