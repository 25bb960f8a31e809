"""What is used of jax's private client of its coordination service, and that it means what it should."""

from __future__ import annotations

from tests.support.jax.meshes import key_values
from tests.support.jax.meshes.jax_processes import shared


def test_two_processes_share_values() -> None:
    first, second = shared(2).run(key_values.exchange)

    assert first["found before"] is None
    assert first["large"] == second["large"] == 2**20
    assert first["first"] == second["first"]
    assert sorted([first["counted"], second["counted"]]) == [1, 2]
    assert first["after removal"] is None
    assert second["after all are removed"] is None


def test_an_installed_jax_has_what_is_used() -> None:
    (said,) = shared(1).run(key_values.without_a_job)

    assert said["lacking"] == []
    assert "expected jax.distributed.initialize() in all processes" in said["refused"]
