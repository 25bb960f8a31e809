"""What the viewer answers of one checkpoint: its tensors, facts, nested values, pictures and statistics."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tensorkeep
from tensorkeep.viewing import Viewer
from tests.support.viewing.client import Client

RNG = np.random.default_rng(3)
HOSTILE = ["</script><img src=x onerror=alert(1)>", "a\u202eb", "new\nline", "\x1b[31m", "{{7*7}}", "é" * 300, ""]
SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.5], np.float32)
ARRAYS = {
    "matrix": RNG.normal(size=(300, 70)).astype(np.float32),
    "cube": np.arange(24.0).reshape(2, 3, 4),
    "half": np.linspace(-1, 1, 50).astype(ml_dtypes.bfloat16),
    "long": np.sin(np.arange(10_000.0)),
    "special": SPECIAL,
    "big": np.array([2**63 - 1, -(2**62), 5]),
    "flags": np.array([[True, False]]),
    "complex": np.array([3 + 4j, 0], np.complex64),
    "scalar": np.array(0.1, np.float32),
    "empty": np.zeros((0, 5), np.float32),
}


def unpacked(text: str) -> np.ndarray:
    return np.frombuffer(base64.b64decode(text), "<f8")


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("viewed")
    tensorkeep.save(ARRAYS, folder / "a.safetensors", metadata={"note": HOSTILE[0]})
    folder.joinpath("config.json").write_text('{"layers": 2}')
    folder.joinpath("tokenizer_config.json").write_text("no JSON")
    folder.joinpath("secret.json").write_text("{}")
    return folder / "a.safetensors"


@pytest.fixture(scope="module")
def client(path: Path):
    with Viewer(path) as viewer:
        yield Client(viewer)


@pytest.fixture(scope="module")
def t(client) -> dict[str, int]:
    return {name: place for place, name in enumerate(client.get("tree")["tensors"]["name"])}


def test_the_tree_lists_every_tensor_in_columns(client, path: Path) -> None:
    tree = client.get("tree", of="a")

    columns = tree["tensors"]
    with tensorkeep.open(path) as file:
        assert columns["name"] == list(file)
        assert [tree["dtypes"][place] for place in columns["dtype"]] == [lazy.dtype for lazy in file.values()]
        assert columns["shape"] == [list(lazy.shape) for lazy in file.values()]
        assert columns["nbytes"] == [lazy.nbytes for lazy in file.values()]
        assert columns["offset"] == [lazy.data_offsets[0] for lazy in file.values()]
    assert set(columns["file"]) == {0}
    assert tree["files"][0]["name"] == "a.safetensors"
    assert (tree["form"], tree["digests"], tree["n_tensors"]) == ("safetensors", "all", len(ARRAYS))
    assert tree["nbytes"] == sum(total["nbytes"] for total in tree["totals"]) == sum(columns["nbytes"])


def test_a_hundred_thousand_tensors_are_one_short_answer(view, tmp_path: Path) -> None:
    arrays = {f"layers.{place // 10}.part_{place % 10}": np.zeros(1, np.int8) for place in range(100_000)}
    tensorkeep.save(arrays, tmp_path / "many.safetensors")
    client = view(tmp_path / "many.safetensors")

    answer = client.request("api/tree", Accept_Encoding="gzip")

    assert answer.headers["Content-Encoding"] == "gzip"
    assert int(answer.headers.get("Content-Length", 0)) < 10**6
    columns = json.loads(answer.data)["tensors"]
    assert {len(column) for column in columns.values()} == {100_000}


def test_names_are_as_they_are_in_the_file(view, tmp_path: Path) -> None:
    tensorkeep.save({name: np.ones(1) for name in HOSTILE}, tmp_path / "a.safetensors")
    client = view(tmp_path / "a.safetensors")

    names = client.get("tree")["tensors"]["name"]

    assert sorted(names) == sorted(HOSTILE)
    assert [client.get("tensor", t=t)["name"] for t in range(len(names))] == names
    assert all(client.result("statistics", t=t)["norm"] == 1 for t in range(len(names)))


def test_facts_have_the_metadata_and_the_configuration_beside(client) -> None:
    facts = client.get("facts", of="a")

    assert ["note", HOSTILE[0]] in facts["metadata"]
    assert facts["beside"] == [{"name": "config.json", "text": '{"layers": 2}'}]
    assert (facts["unknowns"], facts["n_unknowns"], facts["dangers"]) == ([], 0, [])


def test_a_tensor_has_its_place_and_digest(client, t, path: Path) -> None:
    found = client.get("tensor", t=t["matrix"])

    with tensorkeep.open(path) as file:
        lazy = file["matrix"]
        assert found["digest"] == lazy.digest.hex()
        assert found["span"] == [lazy.span.start, lazy.span.stop]
    assert (found["dtype"], found["shape"], found["file"]) == ("F32", [300, 70], "a.safetensors")


@pytest.mark.parametrize("name", ARRAYS)
def test_statistics_are_those_of_the_library(client, t, path: Path, name: str) -> None:
    found = client.result("statistics", t=t[name])

    expected = tensorkeep.statistics(path, names=name)[name]
    for key in ("n_nan", "n_inf", "n_zeros", "n_distinct", "n_elements"):
        assert found[key] == getattr(expected, key)
    for key in ("min", "max", "mean", "std", "norm"):
        assert None is found[key] is getattr(expected, key) or float(found[key]) == float(getattr(expected, key))
    assert found["histogram"]["counts"] == list(expected.histogram.counts)
    assert found["magnitudes"]["edges"] == list(expected.magnitudes.edges)


def test_integers_beyond_those_of_javascript_are_texts(client, t) -> None:
    found = client.result("statistics", t=t["big"])

    assert (found["max"], found["min"]) == (str(2**63 - 1), str(-(2**62)))
    assert client.get("values", t=t["big"])["values"] == [[str(2**63 - 1), str(-(2**62)), 5]]


def test_a_heatmap_is_a_sample_and_zooms_to_every_element(client, t) -> None:
    sample = client.get("sample", t=t["matrix"], height=10, width=7)

    assert sample["rows"] == {"start": 0, "stop": 300, "step": 30}
    assert sample["columns"] == {"start": 0, "stop": 70, "step": 10}
    np.testing.assert_array_equal(unpacked(sample["numbers"]).reshape(10, 7), ARRAYS["matrix"][::30, ::10])
    assert not sample["is_exact"]

    zoomed = client.get("sample", t=t["matrix"], rows="290:1000", columns="5:9")
    np.testing.assert_array_equal(unpacked(zoomed["numbers"]).reshape(10, 4), ARRAYS["matrix"][290:, 5:9])
    assert zoomed["is_exact"]
    assert zoomed["low"] == ARRAYS["matrix"][290:, 5:9].min()


def test_pictures_of_huge_tensors_read_little(view, tmp_path: Path) -> None:
    shapes = {"wide": [4096, 1_000_000], "tall": [1_000_000, 4096]}
    entries, stop = {}, 0
    for name, shape in shapes.items():
        start, stop = stop, stop + 2 * shape[0] * shape[1]
        entries[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [start, stop]}
    header = json.dumps(entries).encode()
    with tmp_path.joinpath("huge.safetensors").open("wb") as file:  # without bytes on the disk
        file.write(len(header).to_bytes(8, "little") + header)
        file.truncate(8 + len(header) + stop)
    client = view(tmp_path / "huge.safetensors")

    wide, tall = (client.get("sample", t=t) for t in (0, 1))

    assert (wide["shape"], wide["rows"]["step"], wide["is_cut"]) == ([16, 256], 256, False)
    assert (tall["shape"], tall["is_cut"]) == ([256, 256], False)
    assert client.get("line", t=1, dim=0)["n_points"] <= 1024
    assert client.get("values", t=0, rows="4000:4100", columns="999990:2000000")["shape"] == [96, 10]


def test_any_plane_of_any_tensor_can_be_shown(client, t) -> None:
    cube = client.get("sample", t=t["cube"], dims="2,0", at="1,1,0")

    assert cube["shape"] == [4, 2]
    np.testing.assert_array_equal(unpacked(cube["numbers"]).reshape(4, 2), ARRAYS["cube"][:, 1, :].T)
    for name, shape in {"half": [1, 50], "scalar": [1, 1], "empty": [0, 0], "complex": [1, 2]}.items():
        assert client.get("sample", t=t[name])["shape"] == shape
    assert unpacked(client.get("sample", t=t["complex"])["numbers"]).tolist() == [5, 0]


def test_what_is_not_finite_reaches_the_page(client, t) -> None:
    np.testing.assert_array_equal(unpacked(client.get("sample", t=t["special"])["numbers"]), SPECIAL)
    assert client.get("values", t=t["special"])["values"] == [["NaN", "Infinity", "-Infinity", 0, 0, 1.5]]


def test_a_table_has_values_as_their_dtype_writes_them(client, t) -> None:
    assert client.get("values", t=t["scalar"])["values"] == [[0.1]]
    assert client.get("values", t=t["flags"])["values"] == [[True, False]]
    assert client.get("values", t=t["complex"])["values"] == [["(3+4j)", "0j"]]
    table = client.get("values", t=t["matrix"])
    assert table["shape"] == [50, 20]
    assert np.array_equal(np.array(table["values"], np.float32), ARRAYS["matrix"][:50, :20])
    assert client.get("values", t=t["matrix"], rows="0:300", columns="60:70")["shape"] == [200, 10]


def test_a_line_is_exact_or_pooled(client, t) -> None:
    row = client.get("line", t=t["matrix"], dim=1, at="5,0")
    np.testing.assert_array_equal(unpacked(row["numbers"]), ARRAYS["matrix"][5])
    column = client.get("line", t=t["matrix"], dim=0, at="0,3", range="100:110")
    np.testing.assert_array_equal(unpacked(column["numbers"]), ARRAYS["matrix"][100:110, 3])

    pooled = client.get("line", t=t["long"], points=100)
    groups = ARRAYS["long"].reshape(100, 100)
    assert (pooled["is_exact"], pooled["per_point"], pooled["n_points"]) == (False, 100, 100)
    np.testing.assert_array_equal(unpacked(pooled["low"]), groups.min(axis=1))
    np.testing.assert_array_equal(unpacked(pooled["high"]), groups.max(axis=1))
    np.testing.assert_allclose(unpacked(pooled["mean"]), groups.mean(axis=1))


def test_singular_values_are_those_of_the_plane(client, t) -> None:
    for query in ({"t": t["matrix"]}, {"t": t["matrix"], "dims": "1,0"}, {"t": t["cube"], "at": "1,0,0"}):
        found = client.result("spectrum", **query)

        plane = ARRAYS["matrix"] if query["t"] == t["matrix"] else ARRAYS["cube"][1]
        expected = np.linalg.svd(plane.astype(np.float64), compute_uv=False)
        np.testing.assert_allclose(found["values"], expected, atol=2 * max(found["floor"], 1e-12))
        assert 1 <= found["stable_rank"] <= found["rank"] <= len(expected)
    assert client.lines("spectrum", t=t["special"])[-1]["error"]["kind"] == "UnsupportedError"


def test_of_a_large_plane_the_largest_singular_values_are_found(view, tmp_path: Path) -> None:
    n = 2100
    values = np.concatenate([np.full(5, 3.0), 2 * 0.95 ** np.arange(n - 5)])
    mirrors = [vector / np.linalg.norm(vector) for vector in np.random.default_rng(0).standard_normal((2, n))]
    plane = np.diag(values)
    plane -= 2 * np.outer(mirrors[0], mirrors[0] @ plane)
    plane -= 2 * np.outer(plane @ mirrors[1], mirrors[1])
    tensorkeep.save({"w": plane.astype(np.float32)}, tmp_path / "w.safetensors")

    found = view(tmp_path / "w.safetensors").result("spectrum", t=0)

    np.testing.assert_allclose(found["values"], values[:64], rtol=3e-3)
    assert (found["n_values"], found["rank"]) == (n, None)
    assert found["stable_rank"] == pytest.approx((values**2).sum() / 9, rel=1e-3)


def test_a_survey_finds_what_is_odd(client, t) -> None:
    lines = client.lines("survey", of="a")

    rows = {row[0]: row for line in lines for row in line.get("rows", ())}
    assert sorted(rows) == sorted(t.values())
    assert lines[-1]["result"] == {
        "n_tensors": len(ARRAYS),
        "n_nan_tensors": [t["special"]],
        "n_inf_tensors": [t["special"]],
        "zero_tensors": [],
    }
    assert rows[t["cube"]][1:4] == [0, 23, 11.5]


REFUSED: dict[str, dict[str, Any]] = {
    "another checkpoint": {"name": "tree", "of": "b"},
    "a path": {"name": "tree", "of": "../etc/passwd"},
    "a step of a file": {"name": "tree", "of": "a:5"},
    "a parameter that is unknown": {"name": "tree", "path": "/etc/passwd"},
    "no tensor": {"name": "tensor"},
    "a tensor that is not there": {"name": "tensor", "t": 10**6},
    "a negative tensor": {"name": "tensor", "t": -1},
    "a tensor by its name": {"name": "statistics", "t": "matrix"},
    "digits of other scripts": {"name": "tensor", "t": "٣"},
    "a huge number": {"name": "tensor", "t": "9" * 500},
    "a huge heatmap": {"name": "sample", "t": 0, "height": 10**5},
    "a heatmap of nothing": {"name": "sample", "t": 0, "height": 0},
    "too many positions": {"name": "sample", "t": 0, "at": "0,0,0,0,0"},
    "a dimension twice": {"name": "sample", "t": 0, "dims": "0,0"},
    "a dimension that is not there": {"name": "sample", "t": 0, "dims": "0,7"},
    "no range": {"name": "sample", "t": 0, "rows": "5"},
    "a range outside": {"name": "sample", "t": 0, "rows": f"{10**9}:{10**9 + 1}"},
    "a difference of shapes": {"name": "sample", "t": 0, "minus": "a", "minus_t": 1},
    "a line of too many points": {"name": "line", "t": 0, "points": 10**6},
    "a node that is not there": {"name": "state", "node": "0.0.0.0"},
    "a node too deep": {"name": "state", "node": ".".join("0" * 500)},
    "a long query": {"name": "tree", "of": "a" * 3000},
    "a store": {"name": "store"},
    "an answer that is not there": {"name": "shutdown"},
}


@pytest.mark.parametrize("query", REFUSED.values(), ids=REFUSED)
def test_what_no_page_asks_for_is_refused(client, query: dict[str, Any]) -> None:
    status, error = client.refused(**query)

    assert status in {400, 404, 422}
    assert error["text"]
    assert "Traceback" not in error["text"]


def test_a_parameter_given_twice_is_refused(client) -> None:
    assert client.raw("tree?of=a&of=a").status == 400
    assert client.raw("tree?of").status == 400
