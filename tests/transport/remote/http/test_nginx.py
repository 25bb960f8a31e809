"""A real server, in every manner in which people run it; and how many requests and bytes it is asked for."""

from __future__ import annotations

import base64
import time
from itertools import islice

import numpy as np
import pytest
import safetensors.numpy
import torch

import tensorkeep
from tensorkeep import remote
from tensorkeep.errors import AccessDeniedError, RangeNotServedError, SourceMissingError
from tests.support.remote.nginx import running_nginx

LOCATIONS = """
    location /whole/     {{ alias {root}/; max_ranges 0; }}
    location /slow/      {{ alias {root}/; limit_rate 300k; }}
    location /moved/     {{ rewrite ^/moved/(.*)$ /$1 redirect; }}
    location /elsewhere/ {{ rewrite ^/elsewhere/(.*)$ http://localhost:$server_port/private/$1 redirect; }}
    location /private/   {{ alias {root}/; auth_basic "x"; auth_basic_user_file {root}/../users; }}
    location /zipped/    {{ alias {root}/; gzip on; gzip_types *; gzip_min_length 1; gzip_proxied any; }}
    location /forbidden/ {{ return 403; }}
"""
QUICK = {"pause_s": 0.001, "longest_pause_s": 0.01, "timeout_s": 10.0}


def weights() -> dict[str, np.ndarray]:
    generator = np.random.default_rng(0)
    return {
        "large": generator.standard_normal((300, 40_000), np.float32),
        "narrow": generator.standard_normal((3000, 16), np.float32),
        "small": np.arange(12, dtype=np.int16).reshape(3, 4),
    }


WEIGHTS = weights()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    parent = tmp_path_factory.mktemp("served")
    parent.joinpath("users").write_text("me:{PLAIN}so%secret/@\n")
    root = parent / "www"
    root.mkdir()
    tensorkeep.save(WEIGHTS, root / "model.safetensors")
    many = {f"layers.{number}.some.attention.weight": np.full(1, number % 100, np.int8) for number in range(100_000)}
    safetensors.numpy.save_file(many, root / "many.safetensors")
    tensorkeep.save(dict(islice(many.items(), 8000)), root / "sealed.safetensors")  # whose header is looked at twice
    tensorkeep.save_checkpoint(WEIGHTS, root / "sharded", max_shard_size="100KB")
    tensorkeep.save_checkpoint(WEIGHTS, root / "one")
    torch.save({"w": torch.arange(100_000)}, root / "state.pt")
    root.joinpath("a b").mkdir()
    tensorkeep.save({"x": np.arange(3)}, root / "a b" / "50% é.safetensors")
    return root


@pytest.fixture(scope="module")
def server(folder):
    with running_nginx(folder, LOCATIONS.format(root=folder)) as running:
        yield running


@pytest.fixture
def asked(server):
    """A function that gives path, status, range and bytes of the requests since the last call."""
    seen = len(server.log())

    def since() -> list[tuple[str, int, str, int]]:
        nonlocal seen
        time.sleep(0.05)  # nginx writes its log when it has sent the last byte
        new = server.log()[seen:]
        seen += len(new)
        return new

    return since


def assert_weights(found) -> None:
    assert found.keys() == WEIGHTS.keys()
    assert all(np.array_equal(found[name], WEIGHTS[name]) for name in WEIGHTS)


@pytest.mark.parametrize("where", ["", "moved/", "zipped/"])
def test_whole_parts_and_digests(server, where) -> None:
    url = f"{server.url}{where}model.safetensors"

    assert_weights(tensorkeep.load(url))
    with tensorkeep.open(url) as file:
        assert np.array_equal(file["large"][5:200:7, 3:9], WEIGHTS["large"][5:200:7, 3:9])
        assert np.array_equal(file["narrow"][[7, 2999], ::-1], WEIGHTS["narrow"][[7, 2999], ::-1])
    assert tensorkeep.verify(url).is_whole


def test_a_server_without_ranges(server, asked) -> None:
    url = f"{server.url}whole/model.safetensors"

    assert_weights(tensorkeep.load(url))
    assert [status for path, status, *_ in asked() if path.startswith("/whole/")] == [200]
    with pytest.raises(RangeNotServedError, match="whole files only"):
        tensorkeep.load(remote(url, whole_nbytes=10**6))


def test_a_slow_server(server) -> None:
    begin = time.monotonic()

    row = tensorkeep.open(f"{server.url}slow/model.safetensors")["large"][299]

    assert np.array_equal(row, WEIGHTS["large"][299])
    assert time.monotonic() - begin < 10, "all of the file came, at 300 kB a second"


def test_escaped_names(server) -> None:
    for name in ("a%20b/50%25%20%C3%A9.safetensors", "a b/50%25 é.safetensors"):
        assert np.array_equal(tensorkeep.load(server.url + name)["x"], np.arange(3))


@pytest.mark.parametrize("name", ["sharded/", "sharded", "sharded/model.safetensors.index.json", "one/"])
def test_directories(server, name) -> None:
    assert_weights(tensorkeep.load(server.url + name))
    assert tensorkeep.verify(server.url + name).is_whole


def test_a_pickle(server) -> None:
    with tensorkeep.open(server.url + "state.pt", framework="torch") as file:
        assert torch.equal(file["w"][500:60_000:9], torch.arange(100_000)[500:60_000:9])


def test_a_directory_without_a_checkpoint(server) -> None:
    with pytest.raises(SourceMissingError, match=r"no checkpoint.*does not list"):
        tensorkeep.open(server.url + "a b/")
    with pytest.raises(AccessDeniedError, match="403"):
        tensorkeep.open(server.url + "forbidden/")


class TestCredentials:
    def test_none(self, server) -> None:
        with pytest.raises(AccessDeniedError, match="401"):
            tensorkeep.open(server.url + "private/model.safetensors")
        with pytest.raises(AccessDeniedError, match="401"):
            tensorkeep.open(server.url + "private/sharded/")

    def test_in_the_url(self, server) -> None:
        url = f"http://me:so%25secret%2F%40@{server.host}/private/"

        assert_weights(tensorkeep.load(url + "model.safetensors"))
        assert_weights(tensorkeep.load(url + "sharded/"))

    def test_as_headers(self, server) -> None:
        headers = {"Authorization": "Basic " + base64.b64encode(b"me:so%secret/@").decode()}

        assert_weights(tensorkeep.load(remote(server.url + "private/sharded/", headers=headers)))

    def test_are_not_handed_to_another_server(self, server) -> None:
        headers = {"Authorization": "Basic " + base64.b64encode(b"me:so%secret/@").decode()}

        with pytest.raises(AccessDeniedError, match="401"):
            tensorkeep.open(remote(server.url + "elsewhere/model.safetensors", headers=headers))


class TestRequests:
    def test_a_short_header_and_a_row(self, server, asked) -> None:
        with tensorkeep.open(server.url + "model.safetensors") as file:
            assert len(asked()) == 1

            row = file["large"][150]

            assert [nbytes for *_, nbytes in asked()] == [row.nbytes]

    @pytest.mark.parametrize(("name", "n_tensors"), [("many", 100_000), ("sealed", 8000)])
    def test_a_long_header(self, server, asked, name, n_tensors) -> None:
        with tensorkeep.open(f"{server.url}{name}.safetensors") as file:
            assert len(file) == n_tensors
            assert len(asked()) == 2

    def test_a_tensor_parallel_quarter_of_wide_rows(self, server, asked) -> None:
        with tensorkeep.open(server.url + "model.safetensors") as file:
            asked()

            quarter = file["large"][:, 10_000:20_000]

            assert np.array_equal(quarter, WEIGHTS["large"][:, 10_000:20_000])
            assert sum(nbytes for *_, nbytes in asked()) < 1.1 * quarter.nbytes

    def test_a_column_of_narrow_rows_comes_in_one_request(self, server, asked) -> None:
        with tensorkeep.open(server.url + "model.safetensors", framework="numpy") as file:
            asked()

            assert np.array_equal(file["narrow"][:, 3], WEIGHTS["narrow"][:, 3])

            assert len(asked()) <= 1  # none, if the tensor lies in what the first request brought

    def test_a_whole_load_reads_each_byte_once(self, server, asked, folder) -> None:
        tensorkeep.load(server.url + "model.safetensors")

        assert sum(nbytes for *_, nbytes in asked()) == folder.joinpath("model.safetensors").stat().st_size

    def test_a_sharded_directory_costs_one_for_the_index_one_for_each_shard_and_one_for_a_single_file(
        self, server, asked, folder
    ) -> None:
        n_shards = len(list(folder.joinpath("sharded").glob("*.safetensors")))
        assert n_shards == 3

        tensorkeep.open(server.url + "sharded/")

        paths = [path for path, *_ in asked() if path.startswith("/sharded/")]  # an answer cut short is logged late
        assert len(paths) == 1 + n_shards + 1  # a single file beside the index would be another save

    def test_a_directory_with_one_file(self, server, asked) -> None:
        tensorkeep.open(server.url + "one/")

        assert [status for _, status, _, _ in asked()] == [404, 206]

    def test_a_pickle_is_opened_once(self, server, asked) -> None:
        tensorkeep.open(server.url + "state.pt")

        spans = [span for _, _, span, _ in asked()]
        assert len(spans) == len(set(spans)) <= 3

    def test_a_redirect_is_followed_once(self, server, asked) -> None:
        with tensorkeep.open(server.url + "moved/model.safetensors") as file:
            for row in (10, 20, 30):
                file["large"][row]

        assert [status for _, status, _, _ in asked()] == [302, 206, 206, 206, 206]
