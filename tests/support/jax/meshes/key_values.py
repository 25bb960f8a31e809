"""What processes do with jax's coordination service in tests."""

from __future__ import annotations

import time
from typing import Any

import jax
from jaxlib import _jax

from tensorkeep.errors import UnsupportedError
from tensorkeep.jax.meshes._coordination import CoordinationService

USED = (
    "key_value_set_bytes",
    "key_value_try_get_bytes",
    "key_value_increment",
    "key_value_delete",
)


def exchange() -> dict[str, Any]:
    """Put, find, count and remove values."""
    rank = jax.process_index()
    store = CoordinationService("test")
    said: dict[str, Any] = {"found before": store.find("nothing")}
    store.put(f"large/{rank}", bytes(2**20))
    said["large"] = len(_wait_for(store, f"large/{1 - rank}"))
    said["first"] = store.put_first("first", str(rank).encode())
    said["counted"] = store.count("counter", 1)
    assert store.count("counter", 0) in {1, 2}
    store.put(f"mine/{rank}", b"\x00\xff")
    store.remove(f"mine/{rank}")
    said["after removal"] = store.find(f"mine/{rank}")
    store.put(f"done/{rank}", b"")
    _wait_for(store, f"done/{1 - rank}")
    if rank == 0:
        store.put("last", b"1")
        _wait_for(store, "seen")
        store.remove_all()
        CoordinationService("other").put("removed", b"1")
    else:
        _wait_for(store, "last")
        store.put("seen", b"1")
        _wait_for(CoordinationService("other"), "removed")
        said["after all are removed"] = store.find("last")
    return said


def _wait_for(store: CoordinationService, key: str) -> bytes:
    until = time.monotonic() + 20
    while time.monotonic() < until:
        if (found := store.find(key)) is not None:
            return found
        time.sleep(0.001)
    raise TimeoutError(key)


def without_a_job() -> dict[str, Any]:
    """Say what the client lacks, and what is said without one."""
    client = _jax.DistributedRuntimeClient
    try:
        CoordinationService("test")
    except UnsupportedError as error:
        refused = str(error)
    return {"lacking": [name for name in USED if not hasattr(client, name)], "refused": refused}
