"""How many requests and bytes usual reads take, as nginx counts them."""

from __future__ import annotations

import time

import numpy as np
import pytest

import tensorkeep
from tensorkeep import remote
from tests.support.remote.nginx import running_nginx

HIDDEN, INNER, N_LAYERS = 256, 768, 12
MATRIX = (4096, 1024)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("costs")
    shapes = {"q_proj": (HIDDEN, HIDDEN), "o_proj": (HIDDEN, HIDDEN), "up": (INNER, HIDDEN), "down": (HIDDEN, INNER)}
    model = {
        f"layers.{layer}.{name}.weight": np.full(shape, layer, np.float32)
        for layer in range(N_LAYERS)
        for name, shape in shapes.items()
    }
    tensorkeep.save_checkpoint(model, folder / "model", max_shard_size="10MB")
    tensorkeep.save({"matrix": np.arange(np.prod(MATRIX), dtype=np.int32).reshape(MATRIX)}, folder / "m.safetensors")
    small = np.zeros(1, np.float32)
    tensorkeep.save(
        {f"encoder.layer.{n}.weight": small for n in range(100_000)}, folder / "n.safetensors", ties="copy"
    )
    with running_nginx(folder) as running:
        yield running


@pytest.fixture
def cost(server):
    """Say what a read costs: requests, and bytes that came."""

    def cost(read) -> tuple[int, int]:
        time.sleep(0.05)  # nginx writes a line when it has sent all
        n_before = len(server.log())
        read()
        time.sleep(0.05)
        new = server.log()[n_before:]
        return len(new), sum(nbytes for *_, nbytes in new)

    return cost


def test_the_header_of_100_000_tensors(server, cost) -> None:
    n_requests, nbytes = cost(lambda: tensorkeep.open(server.url + "n.safetensors"))

    assert n_requests <= 2
    assert nbytes < 1.02 * 2**20 * 20


def test_a_row(server, cost) -> None:
    n_requests, nbytes = cost(lambda: tensorkeep.open(server.url + "m.safetensors")["matrix"][3000])

    assert n_requests <= 2
    assert nbytes <= 2**17 + 4 * MATRIX[1]


@pytest.mark.parametrize("columns", [np.s_[:, 256:512], np.s_[:, 3:40]], ids=["a quarter", "few"])
def test_columns(server, cost, columns) -> None:
    file = tensorkeep.open(remote(server.url + "m.safetensors", head_nbytes=1024))

    n_requests, nbytes = cost(lambda: file["matrix"][columns])

    wanted = np.empty(MATRIX, np.int8)[columns].size * 4
    part_head_nbytes = 120  # what HTTP says of each part
    assert n_requests <= 1 + MATRIX[0] // 200
    assert nbytes < wanted * 1.1 + MATRIX[0] * part_head_nbytes


def test_a_quarter_of_a_model_that_is_parallel_by_tensors(server, cost) -> None:
    checkpoint = tensorkeep.open(remote(server.url + "model/", head_nbytes=1024))

    def read() -> int:
        wanted = 0
        for name, lazy in checkpoint.items():
            by_columns = "o_proj" in name or "down" in name
            extent = lazy.shape[int(by_columns)] // 4
            part = np.s_[:, extent : 2 * extent] if by_columns else np.s_[extent : 2 * extent]
            wanted += lazy[part].nbytes
        return wanted

    wanted = sum(lazy.nbytes for lazy in checkpoint.values()) // 4
    n_requests, nbytes = cost(read)

    assert nbytes < 1.25 * wanted  # pieces of 256 bytes, and 100 that HTTP says of each
    assert n_requests <= N_LAYERS * 7
