"""What a read would cost is what it costs."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import tensorkeep
from tensorkeep import remote
from tensorkeep.errors import SelectionError, TensorNotFoundError
from tests.support.remote.fault_server import FaultServer

WEIGHTS = {
    "wide": np.arange(600 * 900, dtype=np.int32).reshape(600, 900),
    "narrow": np.arange(4000, dtype=np.int16).reshape(2000, 2),
    "bias": np.ones(7, np.float64),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("planned")
    tensorkeep.save(WEIGHTS, root / "one.safetensors")
    tensorkeep.save_checkpoint(WEIGHTS, root, max_shard_size="500KB", split_large=True)
    torch.save({"crosswise": torch.from_numpy(WEIGHTS["wide"]).t(), "bias": torch.ones(3)}, root / "pickled.pt")
    return root


@pytest.fixture
def server(folder):
    with FaultServer({path.name: path.read_bytes() for path in folder.iterdir()}) as running:
        yield running


def asked(server, begin: int) -> list[tuple[int, int]]:
    return sorted(span for each in server.requests[begin:] for span in each.spans)


def planned(plan) -> list[tuple[int, int]]:
    return sorted((span.start, span.stop) for request in plan.requests for span in request.ranges)


@pytest.mark.parametrize("name", ["one.safetensors", "model.safetensors.index.json", "pickled.pt"])
@pytest.mark.parametrize("many", [True, False], ids=["several ranges", "one range"])
@pytest.mark.parametrize(
    "index", [np.s_[:], np.s_[3], np.s_[:, 5:90], np.s_[::50, ::7], np.s_[[1, 500, 7]], np.s_[5:5], ...], ids=str
)
def test_a_part_costs_what_was_planned(server, name, many, index) -> None:
    server.many = many
    tensor = "crosswise" if name == "pickled.pt" else "wide"
    with tensorkeep.open(remote(server.url + name, head_nbytes=2048, request_nbytes=2**17)) as file:
        file[tensor][::50, ::50]  # by now it is known whether the server gives several ranges
        plan = file.plan({tensor: index})
        begin = len(server.requests)

        block = np.asarray(file[tensor][index])

        assert asked(server, begin) == planned(plan)
        assert len(server.requests) - begin == plan.n_requests
        assert plan.nbytes == sum(each.nbytes for each in server.requests[begin:])
        assert plan.wanted_nbytes == block.nbytes


def test_a_load_costs_what_was_planned(server) -> None:
    with tensorkeep.open(remote(server.url + "model.safetensors.index.json", head_nbytes=2048)) as file:
        whole, some = file.plan(), file.plan(["bias", "narrow"])
        begin = len(server.requests)

        file.load(["bias", "narrow"])
        assert asked(server, begin) == planned(some)

        begin = len(server.requests)
        file.load()
        assert asked(server, begin) == planned(whole)
        assert whole.wanted_nbytes == sum(tensor.nbytes for tensor in WEIGHTS.values())


def test_nothing_is_asked_for(server) -> None:
    with tensorkeep.open(server.url + "one.safetensors") as file:
        begin = len(server.requests)

        file.plan()
        file.plan({"wide": np.s_[:, 0]})
        file.select("w*").plan()

        assert len(server.requests) == begin


def test_a_plan_is_a_line_of_text(server) -> None:
    with tensorkeep.open(remote(server.url + "one.safetensors", head_nbytes=2048)) as file:
        assert str(file.plan({"wide": np.s_[300]})) == "1 request, 3,600 bytes for 3,600 that are wanted"


def test_a_local_file(folder) -> None:
    plan = tensorkeep.open(folder / "one.safetensors").plan({"wide": np.s_[1:3]})

    assert plan.requests[0].path == str(folder / "one.safetensors")
    assert (plan.nbytes, plan.wanted_nbytes) == (7200, 7200)


def test_what_is_not_there(folder) -> None:
    file = tensorkeep.open(folder / "one.safetensors")

    with pytest.raises(TensorNotFoundError):
        file.plan("nothing")
    with pytest.raises(SelectionError):
        file.plan({"wide": np.s_[1000]})
