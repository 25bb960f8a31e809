"""A token of SoftHSM with a key of each kind: a hardware security module in software."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

from tensorkeep.signing import PrivateKey
from tests.support.signing import get_softhsm

LABEL, PIN = "release keys", "one: PIN & more"
KEYS = {
    "p256": PrivateKey(ec.generate_private_key(ec.SECP256R1())),
    "p384": PrivateKey(ec.generate_private_key(ec.SECP384R1())),
    "p521": PrivateKey(ec.generate_private_key(ec.SECP521R1())),
    "ed25519": PrivateKey(ed25519.Ed25519PrivateKey.generate()),
}
"""Label of each key in the token to the key."""


class Token:
    """A token.

    Attributes:
        module: The path of the library that reaches it.
    """

    def __init__(self, module: str, program: str) -> None:
        self.module = module
        self._program = program

    def run(self, *arguments: str) -> None:
        subprocess.run([self._program, "--module", self.module, *arguments], check=True, stdout=subprocess.DEVNULL)

    def uri(self, key: str, query: str = "") -> str:
        return f"pkcs11:token={quote(LABEL)};object={key}?module-path={self.module}{query}"


@contextmanager
def running_softhsm(folder: Path) -> Iterator[Token]:
    """Make a token in a folder, and import the keys; this process and those it starts see it."""
    found = get_softhsm.find_softhsm()
    if found is None:
        if sys.platform != "linux":
            pytest.skip("SoftHSM is not installed, and is easy to get on Linux only")
        pytest.fail(f"SoftHSM is missing: {get_softhsm.HOW}", pytrace=False)
    (folder / "tokens").mkdir(parents=True)
    configuration = folder / "softhsm2.conf"
    configuration.write_text(f"directories.tokendir = {folder / 'tokens'}\nlog.level = ERROR\n")
    before = os.environ.get("SOFTHSM2_CONF")
    os.environ["SOFTHSM2_CONF"] = str(configuration)
    try:
        token = Token(*found)
        token.run("--init-token", "--free", "--label", LABEL, "--pin", PIN, "--so-pin", "12345678")
        for number, (name, key) in enumerate(KEYS.items(), 1):
            pem = folder / f"{name}.pem"
            key.write(pem)
            where = ("--token", LABEL, "--label", name, "--id", f"0{number}", "--pin", PIN)
            token.run("--import", str(pem), *where)
        yield token
    finally:
        if before is None:
            del os.environ["SOFTHSM2_CONF"]
        else:
            os.environ["SOFTHSM2_CONF"] = before
