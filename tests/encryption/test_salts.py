"""No key and nonce is used twice: not by another save, a save that was killed, or a header that is written again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorkeep
from tensorkeep.encryption import EncryptingSink, Encryption
from tests.support import SUPPORT
from tests.support.encryption.killed_saves import KEY, file_of
from tests.support.soak import SEED, rounds

N_KILLS = rounds(12, 500)


@pytest.mark.soak
def test_killed_saves_leave_one_whole_checkpoint_and_repeat_no_nonce(tmp_path: Path) -> None:
    program = SUPPORT / "encryption" / "killed_saves.py"
    done = subprocess.run(
        [sys.executable, str(program), str(tmp_path), str(N_KILLS), str(SEED)],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    counts = json.loads(done.stdout)
    assert counts["rounds"] == N_KILLS
    assert counts["partial"] >= N_KILLS // 6, "the kills came too early or too late to say anything"


def test_equal_saves_have_other_salts_and_other_ciphertext(tmp_path: Path) -> None:
    found = []
    for number in range(3):
        directory = tmp_path / str(number)
        tensorkeep.save_checkpoint(
            {"a": np.ones(50_000), "b": np.ones(50_000)}, directory, encrypt=KEY, max_shard_size="400kB"
        )
        found += [file_of(path.read_bytes()) for path in directory.glob("*.safetensors")]

    assert len({file[0] for file in found if file}) == 6
    assert len({file[1] for file in found if file}) == 6


class Collected:
    """A sink that fails at a call, and otherwise keeps what it gets."""

    def __init__(self, fails_at: int = -1) -> None:
        self.content = bytearray()
        self._calls_left = fails_at

    def _count(self) -> None:
        self._calls_left -= 1
        if self._calls_left == -1:
            raise OSError("full")

    def preallocate(self, nbytes: int) -> None:
        pass

    def write(self, buffers: Any) -> None:
        self._count()
        for buffer in buffers:
            self.content += buffer

    def rewrite(self, offset: int, data: bytes) -> None:
        self._count()
        self.content[offset : offset + len(data)] = data


def test_each_nonce_is_given_to_the_cipher_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from cryptography.hazmat.primitives.ciphers import aead

    used: Counter[tuple[bytes, bytes]] = Counter()

    class Watched:
        def __init__(self, key: bytes) -> None:
            self.key, self.aes = key, aead_of(key)

        def encrypt(self, nonce: bytes, data: bytes, context: bytes) -> bytes:
            used[self.key, nonce] += 1
            return self.aes.encrypt(nonce, data, context)

        def encrypt_into(self, nonce: bytes, data: bytes, context: bytes, into: memoryview) -> int:
            used[self.key, nonce] += 1
            return self.aes.encrypt_into(nonce, data, context, into)

    aead_of = aead.AESGCM
    monkeypatch.setattr(aead, "AESGCM", Watched)
    state = {"a": np.arange(100_000.0), "b": np.ones(50_000)}
    for path in ("one.safetensors", "memory://salts/one.safetensors"):
        for _ in range(2):
            tensorkeep.save(state, path if "://" in path else tmp_path / path, encrypt=KEY)
    for directory in (tmp_path / "d", "memory://salts/d"):
        tensorkeep.save_checkpoint(state, directory, encrypt=KEY, max_shard_size="900kB", sha256=True)

    assert len(used) > 80
    assert set(used.values()) == {1}


def test_a_header_is_encrypted_once() -> None:
    sink = EncryptingSink(Collected(), Encryption(KEY), "encrypted", None)  # type: ignore[arg-type]
    head = (16).to_bytes(8, "little") + b"{}".ljust(16)
    sink.preallocate(len(head))
    sink.write([head])
    sink.rewrite(0, head)

    with pytest.raises(RuntimeError, match="cannot be encrypted further"):
        sink.rewrite(0, head)


def test_a_file_that_is_being_written_is_not_encrypted_in_a_forked_process() -> None:
    sink = EncryptingSink(Collected(), Encryption(KEY), "encrypted", None)  # type: ignore[arg-type]
    head = (16).to_bytes(8, "little") + b"{}".ljust(16)
    sink.preallocate(len(head) + 70_000)
    sink.write([head])

    pid = os.fork()
    if not pid:
        try:
            sink.write([bytes(70_000)])
        except RuntimeError:
            os._exit(7)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    sink.write([bytes(70_000)])


@pytest.mark.parametrize("fails_at", range(4))
def test_after_a_failed_write_nothing_goes_on(fails_at: int) -> None:
    inner = Collected(fails_at)
    sink = EncryptingSink(inner, Encryption(KEY), "encrypted", None)  # type: ignore[arg-type]
    head = (16).to_bytes(8, "little") + b"{}".ljust(16)

    def write_all() -> None:
        sink.preallocate(len(head) + 6_000_000)
        sink.write([head])
        sink.write([bytes(6_000_000)])
        sink.rewrite(0, head)

    with pytest.raises(OSError, match="full"):
        write_all()
    before = bytes(inner.content)
    for again in (lambda: sink.write([bytes(70_000)] * 100), lambda: sink.rewrite(0, head)):
        with pytest.raises((RuntimeError, ValueError)):
            again()
    assert bytes(inner.content) == before
