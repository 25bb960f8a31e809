"""jax's coordination service as `KeyValues`; the only file that uses jax's private client of it.

It is there once `jax.distributed.initialize` was called. A test says what is used of the client, so that a version
of jax without it is noticed.
"""

from __future__ import annotations

from typing import Any, Literal

import jax
from jax._src import distributed

from tensorkeep.errors import TransportError, UnsupportedError


class CoordinationService:
    """The values under one prefix of the service: `KeyValues`."""

    def __init__(self, prefix: str) -> None:
        self._client = _client()
        self._prefix = prefix

    def put(self, key: str, value: bytes) -> None:
        """Set a value."""
        with _ServiceErrors():
            self._client.key_value_set_bytes(self._at(key), value, allow_overwrite=True)

    def find(self, key: str) -> bytes | None:
        """Return a value, or None if none was set."""
        with _ServiceErrors():
            try:
                return bytes(self._client.key_value_try_get_bytes(self._at(key)))
            except jax.errors.JaxRuntimeError as error:
                if str(error).startswith("NOT_FOUND"):
                    return None
                raise

    def put_first(self, key: str, value: bytes) -> bytes:
        """Set a value unless there is one; return the one that is there."""
        with _ServiceErrors():
            try:
                self._client.key_value_set_bytes(self._at(key), value, allow_overwrite=False)
            except jax.errors.JaxRuntimeError as error:
                if not str(error).startswith("ALREADY_EXISTS"):
                    raise
        return self.find(key) or value

    def count(self, key: str, more: int) -> int:
        """Increase a counter, which begins at 0, and return it."""
        with _ServiceErrors():
            return int(self._client.key_value_increment(self._at(key), more))

    def remove(self, key: str) -> None:
        """Remove a value."""
        with _ServiceErrors():
            self._client.key_value_delete(self._at(key))

    def remove_all(self) -> None:
        """Remove all values."""
        with _ServiceErrors():
            self._client.key_value_delete(self._prefix)

    def _at(self, key: str) -> str:
        return f"{self._prefix}/{key}"


def _client() -> Any:
    client = distributed.global_state.client
    if client is None:
        raise UnsupportedError(
            "the processes have no way to coordinate a save",
            expected="jax.distributed.initialize() in all processes",
            found=f"{jax.process_count()} processes without jax's coordination service",
        )
    return client


class _ServiceErrors:
    """Says of an error of the service's client what it means."""

    def __enter__(self) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> Literal[False]:
        if isinstance(error, jax.errors.JaxRuntimeError):
            raise TransportError(
                "jax's coordination service does not answer: its process may have ended",
                found=next(iter(str(error).splitlines()), type(error).__name__),
            ) from error
        return False
