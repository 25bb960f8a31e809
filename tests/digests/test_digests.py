"""Digests, also in processes that were forked."""

from __future__ import annotations

import subprocess
import sys

import blake3
import pytest

from tensorkeep.digests import digest_of, new_hasher

DATA = bytes(range(256)) * 20_000


@pytest.mark.parametrize("parallel", [False, True])
def test_the_digest_is_that_of_blake3(parallel) -> None:
    hasher = new_hasher(parallel=parallel)
    hasher.update(DATA)

    assert hasher.digest() == blake3.blake3(DATA).digest() == digest_of(DATA)


@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork")
def test_a_forked_process_does_not_wait_for_threads_that_it_has_not() -> None:
    code = """
import os
from tensorkeep.digests import new_hasher
def digest():
    hasher = new_hasher(parallel=True)
    hasher.update(bytes(5_000_000))
    return hasher.hexdigest()
expected = digest()
child = os.fork()
if not child:
    os._exit(digest() != expected)
os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""

    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0
