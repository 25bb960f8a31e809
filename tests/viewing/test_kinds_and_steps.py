"""What the viewer answers of states, pickles, other formats, servers, damaged files, two checkpoints and stores."""

from __future__ import annotations

import base64
import json
import os
import pickle
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch

import tensorkeep
from tensorkeep.server import Server

RNG = np.random.default_rng(5)


def children(client, node: str = "", of: str = "a") -> dict[str, dict[str, Any]]:
    return {child["label"]: child for child in client.get("state", of=of, node=node)["children"]}


def trained_state() -> dict[str, Any]:
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(3)).sum().backward()
    optimizer.step()
    return {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "rng": torch.get_rng_state(),
        "epoch": 3,
        "note": "x" * 50_000,
        "loss": float("nan"),
        "huge": 2**5000,
    }


@pytest.mark.parametrize("suffix", ["safetensors", "pt"])
def test_a_training_state_is_an_outline(view, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"state.{suffix}"
    (tensorkeep.save if suffix == "safetensors" else torch.save)(trained_state(), path)
    client = view(path)
    names = client.get("tree")["tensors"]["name"]

    top = children(client)

    assert client.get("facts")["has_tree"]
    assert {label: child["kind"] for label, child in top.items()} == {
        "model": "OrderedDict",
        "optimizer": "dict",
        "rng": "tensor",
        "epoch": "int",
        "note": "str",
        "loss": "float",
        "huge": "int",
    }
    assert (top["epoch"]["text"], top["loss"]["text"], top["huge"]["text"]) == (
        "3",
        "nan",
        "an integer of 5,001 bits",
    )
    assert len(top["note"]["text"]) < 11_000
    assert names[top["rng"]["t"]] == "rng"
    groups = children(client, children(client, top["optimizer"]["node"])["param_groups"]["node"])
    assert children(client, groups["0"]["node"])["lr"]["text"] == "0.001"


def test_a_long_list_comes_in_pieces(view, tmp_path: Path) -> None:
    tensorkeep.save({"w": np.ones(1), "losses": list(range(1200))}, tmp_path / "a.safetensors")
    client = view(tmp_path / "a.safetensors")
    node = children(client)["losses"]["node"]

    pieces = [client.get("state", node=node, start=start)["children"] for start in (0, 500, 1000, 1500)]

    assert [len(piece) for piece in pieces] == [500, 500, 200, 0]
    assert [child["text"] for piece in pieces for child in piece] == [str(place) for place in range(1200)]


class Harmful:
    def __reduce__(self) -> Any:
        return os.system, ("touch harmed",)


def test_nothing_of_a_pickle_is_run_and_everything_is_said(view, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save({"w": torch.ones(2), "hook": Harmful(), "relu": torch.nn.functional.relu}, tmp_path / "bad.pt")
    client = view(tmp_path / "bad.pt")

    facts = client.get("facts")
    assert {name for name, _ in facts["unknowns"]} == {"hook", "relu"}
    assert any("system" in name for name, _ in facts["dangers"])
    assert client.get("tree")["unknown_names"] == 2
    assert children(client)["hook"]["kind"] == "unknown"
    assert children(client, children(client)["hook"]["node"])["args"]["n_children"] == 1
    report = client.result("scan")
    assert report["verdict"] == "dangerous"
    assert "os.system" in {each["name"] for file in report["files"] for each in file["findings"]} | {"os.system"}
    assert not tmp_path.joinpath("harmed").exists()


def test_the_outline_of_a_pickle_reads_no_arrays(view, tmp_path: Path) -> None:
    path = tmp_path / "arrays.pkl"
    path.write_bytes(pickle.dumps({"a": RNG.normal(size=(400, 400)), "lr": 0.5}))
    client = view(path)

    found = children(client)

    assert (found["a"]["kind"], found["a"]["text"], found["lr"]["text"]) == ("tensor", "F64 [400, 400]", "0.5")


def test_names_that_utf8_lacks_are_shown(view, tmp_path: Path) -> None:
    path = tmp_path / "names.pkl"
    path.write_bytes(pickle.dumps({"\ud800x": np.ones(2), "note": "\udcff"}))
    client = view(path)

    assert client.get("tree")["tensors"]["name"] == ["\ud800x"]
    assert children(client)["note"]["text"] == "\udcff"


def test_tensors_that_repeat_few_bytes_are_bounded(view, tmp_path: Path) -> None:
    huge = {"cube": torch.zeros(1, dtype=torch.float64).expand(2**31, 2**31), "long": torch.zeros(1).expand(10**18)}
    torch.save({**huge, "bytes": np.bytes_(b"x" * 3_000_000)}, tmp_path / "huge.pt")
    client = view(tmp_path / "huge.pt")

    for t in range(2):
        assert client.get("sample", t=t)["low"] == 0
        assert client.get("line", t=t)["n_points"] <= 1024
        assert "expanded view" in client.lines("statistics", t=t)[-1]["error"]["message"]
    assert [row[-1] is None for row in client.lines("survey")[0]["rows"]] == [False, False]
    assert len(children(client)["bytes"]["text"]) < 1000


@pytest.mark.skipif(os.name == "nt", reason="links need rights there")
def test_a_configuration_that_is_a_link_elsewhere_is_not_shown(view, tmp_path: Path) -> None:
    """Where the tensors are links too, as in a cache of the Hub, it is."""
    blobs, model = tmp_path / "blobs", tmp_path / "snapshots" / "model"
    blobs.mkdir()
    model.mkdir(parents=True)
    tensorkeep.save({"w": np.ones(1)}, blobs / "0")
    blobs.joinpath("1").write_text('{"model": 1}')
    tmp_path.joinpath("secret.json").write_text('{"secret": 1}')
    model.joinpath("model.safetensors").symlink_to(blobs / "0")
    model.joinpath("generation_config.json").symlink_to(blobs / "1")
    model.joinpath("config.json").symlink_to(tmp_path / "secret.json")

    assert [each["name"] for each in view(model).get("facts")["beside"]] == ["generation_config.json"]


def test_odd_headers_have_answers(view, tmp_path: Path) -> None:
    """Shapes beyond all arrays, more dimensions than NumPy has, and a dtype of later versions."""
    entries = {
        "none": {"dtype": "F32", "shape": [2**62, 0, 3], "data_offsets": [0, 0]},
        "deep": {"dtype": "F32", "shape": [1] * 64, "data_offsets": [0, 4]},
        "later": {"dtype": "X9", "shape": [4], "data_offsets": [4, 8]},
    }
    header = json.dumps(entries).encode()
    tmp_path.joinpath("a.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(8))
    client = view(tmp_path / "a.safetensors")

    tree = client.get("tree")
    assert tree["tensors"]["shape"][0] == [str(2**62), 0, 3]
    for t in range(3):
        for name in ("tensor", "sample", "line", "values", "statistics", "spectrum"):
            answer = client.raw(name, t=t)
            assert answer.status in {200, 422}
            assert json.loads(answer.data.splitlines()[-1]), (name, t)
    assert client.get("line", t=0, dim=0)["n_points"] == 0
    assert "`later`" in client.refused("sample", t=2)[1]["text"]


def test_quantized_tensors_are_shown_as_numbers(view, tmp_path: Path) -> None:
    array = RNG.normal(size=(64, 256)).astype(np.float32)
    kind = gguf.GGMLQuantizationType.Q8_0
    writer = gguf.GGUFWriter(tmp_path / "q.gguf", "llama")
    writer.add_tensor("q", gguf.quantize(array, kind), raw_dtype=kind)
    for step in (
        writer.write_header_to_file,
        writer.write_kv_data_to_file,
        writer.write_tensors_to_file,
        writer.close,
    ):
        step()
    client = view(tmp_path / "q.gguf")

    assert client.get("tensor", t=0)["is_quantized"]
    assert ["general.architecture", "llama"] in client.get("facts")["attributes"]
    assert client.get("values", t=0)["values"][0][0] == pytest.approx(array[0, 0], abs=0.05)
    assert client.result("statistics", t=0)["std"] == pytest.approx(array.std(), rel=0.01)


def test_shards_pieces_and_ties_have_their_places(view, tmp_path: Path) -> None:
    weight = torch.ones(100, 10)
    state = {"embed": weight, "head": weight, "part": weight[:5], "other": torch.zeros(1000)}
    tensorkeep.save_checkpoint(state, tmp_path / "run", max_shard_size=3000, split_large=True)
    client = view(tmp_path / "run")

    tree = client.get("tree")
    t = {name: place for place, name in enumerate(tree["tensors"]["name"])}

    assert tree["index"] == "model.safetensors.index.json"
    assert len(tree["files"]) > 2
    assert tree["nbytes"] == 8000
    of_head = tree["views"].get(str(t["head"])) or tree["views"][str(t["embed"])]
    assert of_head[0] in {t["embed"], t["head"]}
    facts = client.get("tensor", t=t["other"])
    assert len(facts["pieces"]) > 1
    assert tree["tensors"]["offset"][t["other"]] is None
    assert dict(client.get("facts")["splits"])["other"] == len(facts["pieces"])
    assert client.result("statistics", t=t["part"])["norm"] == pytest.approx(50**0.5)


def test_a_url_is_viewed_like_a_file(view, tmp_path: Path) -> None:
    array = RNG.normal(size=(200, 300)).astype(np.float32)
    tensorkeep.save({"w": array}, tmp_path / "a.safetensors")
    tmp_path.joinpath("config.json").write_text("{}")
    with Server(tmp_path, port=0) as server:
        client = view(f"{server.url}a.safetensors")

        assert client.get("tree")["tensors"]["name"] == ["w"]
        assert [each["name"] for each in client.get("facts")["beside"]] == ["config.json"]
        sample = client.get("sample", t=0, rows="100:110", columns="0:300")
        numbers = np.frombuffer(base64.b64decode(sample["numbers"]), "<f8").reshape(sample["shape"])
        np.testing.assert_array_equal(numbers, array[100:110, ::2])
        assert client.result("statistics", t=0)["max"] == array.max()
        assert client.result("verify")["status"] == "whole"


def test_a_directory_in_a_store_is_viewed_like_one_on_the_disk(view) -> None:
    tensorkeep.save_checkpoint(
        {"w": np.ones((100, 100)), "v": np.ones(5)}, "memory://viewed/run", max_shard_size=50_000
    )
    client = view("memory://viewed/run/")

    assert client.get("tree")["path"] == client.get("facts")["path"]
    assert client.get("about")["sides"][0]["path"] == "memory://viewed/run/"
    assert len(client.get("tree")["files"]) == 2
    assert client.get("tensor", t=0)["span"][1] - client.get("tensor", t=0)["span"][0] == 80_000
    assert client.result("statistics", t=1)["norm"] == 5**0.5
    assert client.result("compare", b="a")["n_equal"] == 2
    assert client.result("verify")["status"] == "whole"


def test_the_secret_of_a_url_is_not_shown(view, tmp_path: Path) -> None:
    tensorkeep.save({"w": np.ones(1)}, tmp_path / "a.safetensors")
    with Server(tmp_path, port=0, token="hush-hush") as server:
        url = server.url.replace("http://", "http://:hush-hush@") + "a.safetensors"
        client = view(url)

        for name in ("about", "tree", "facts", "tensor?t=0", "scan", "verify"):
            assert b"hush-hush" not in client.raw(name).data, name


def test_another_format_is_viewed_like_any(view, tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "a.npz", w=np.arange(12.0).reshape(3, 4), text=np.array(["a", "b"]))
    client = view(tmp_path / "a.npz")

    assert client.get("tree")["tensors"]["name"] == ["w"]
    assert client.get("facts")["strings"][0][0] == "text"
    assert client.get("values", t=0)["values"][2] == [8, 9, 10, 11]
    assert client.result("statistics", t=0)["mean"] == 5.5
    assert client.result("scan")["verdict"] == "clean"


def test_damage_is_found_at_its_place(view, tmp_path: Path) -> None:
    tensorkeep.save({"a": np.ones(100), "b": np.ones(100)}, tmp_path / "a.safetensors")
    client = view(tmp_path / "a.safetensors")
    data = bytearray(tmp_path.joinpath("a.safetensors").read_bytes())
    data[-1] ^= 1
    tmp_path.joinpath("a.safetensors").write_bytes(data)

    found = client.result("verify")

    assert found["status"] == "damaged"
    (finding,) = found["findings"]
    assert (finding["kind"], finding["tensor"], finding["t"]) == ("data", "b", 1)


def test_a_file_that_is_cut_short_is_an_error_and_not_the_end(view, tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    tensorkeep.save({"w": np.ones((1000, 1000))}, path)
    client = view(path)
    os.truncate(path, 5000)

    assert client.lines("statistics", t=0)[-1]["error"]["text"]
    assert client.refused("sample", t=0)[0] == 422
    assert client.get("about")["sides"]


def test_two_checkpoints_are_compared(view, tmp_path: Path) -> None:
    same, base = np.ones(5), RNG.normal(size=(300, 200))
    moved = base.copy()
    moved[3, 4] += 2
    a = {"same": same, "moved": base, "cast": np.ones(4, np.float32), "grown": np.ones(3), "gone": same}
    b = {"same": same, "moved": moved, "cast": np.ones(4) * 1.5, "grown": np.ones(4), "new": same}
    a["odd"], b["odd"] = np.array([np.nan, np.inf, 1.0]), np.array([np.nan, np.inf, 2.0])
    a["zero"], b["zero"] = np.zeros(2), np.array([-0.0, 0.0])
    tensorkeep.save({**a, "epoch": 1}, tmp_path / "a.safetensors")
    tensorkeep.save({**b, "epoch": 2}, tmp_path / "b.safetensors")
    client = view(tmp_path / "a.safetensors", tmp_path / "b.safetensors")
    names = [client.get("tree", of=of)["tensors"]["name"] for of in "ab"]

    lines = client.lines("compare")

    rows = {names[0][row[0]]: row for line in lines for row in line.get("rows", ())}
    assert all(names[0][row[0]] == names[1][row[1]] for row in rows.values())
    assert {name: row[2] for name, row in rows.items()} == {
        "same": "equal",
        "moved": "differs",
        "cast": "dtype",
        "grown": "shape",
        "odd": "differs",
        "zero": "bits",
    }
    _, _, _, norm, relative, max_abs, n_different, norm_a = rows["moved"]
    assert (norm, max_abs, n_different) == (pytest.approx(2), pytest.approx(2), 1)
    assert norm_a == pytest.approx(np.linalg.norm(base))
    assert relative == pytest.approx(2 / np.linalg.norm(base))
    assert rows["odd"][3:7] == [1, 1, 1, 1]
    assert rows["cast"][3] == pytest.approx(1)
    result = lines[-1]["result"]
    assert ([names[0][t] for t in result["only_in_a"]], [names[1][t] for t in result["only_in_b"]]) == (
        ["gone"],
        ["new"],
    )
    assert result["data"] == [{"path": "epoch", "a": "1", "b": "2"}]
    assert (result["n_equal"], result["n_different"]) == (1, 5)

    t = [each.index("moved") for each in names]
    pair = client.result("difference", ta=t[0], tb=t[1])
    assert (pair["max"], pair["n_zeros"], pair["n_different"]) == (pytest.approx(2), base.size - 1, 1)
    sample = client.get("sample", of="b", t=t[1], minus="a", minus_t=t[0], height=300)
    assert sample["high"] == pytest.approx(2)
    grown = [each.index("grown") for each in names]
    assert client.refused("difference", ta=grown[0], tb=grown[1])[0] == 422


def test_a_store_shows_its_steps(view, tmp_path: Path) -> None:
    store = tensorkeep.CheckpointStore(tmp_path / "run", keep_last=None, monitor="loss")
    frozen = np.ones(100_000)
    for step, loss in ((1, 0.5), (2, 0.25), (3, float("nan"))):
        store.save(step, {"frozen": frozen, "trained": np.full(10, float(step))}, metrics={"loss": loss})
    client = view(tmp_path / "run")

    (side,) = client.get("about")["sides"]
    assert (side["is_store"], side["first"]) == (True, "a:3")
    found = client.get("store")
    assert [step["of"] for step in found["steps"]] == ["a:1", "a:2", "a:3"]
    assert [step["metrics"]["loss"] for step in found["steps"]] == [0.5, 0.25, "NaN"]
    assert [step["is_best"] for step in found["steps"]] == [False, True, False]
    assert found["rules"]["monitor"] == "loss"
    names = client.get("tree", of="a:2")["tensors"]["name"]
    assert client.get("values", of="a:2", t=names.index("trained"))["values"][0][0] == 2
    rows = client.rows("compare", a="a:1", b="a:3")
    assert {names[row[0]]: row[2] for row in rows} == {"frozen": "equal", "trained": "differs"}
    assert client.result("verify", of="a:1")["status"] == "whole"
    for of in ("a", "a:9", "b:1", "a:-1", "a:../..", f"a:{10**14}"):
        assert client.refused("tree", of=of)[0] in {400, 404}

    store.save(4, {"frozen": frozen, "trained": np.ones(10)})
    assert len(client.get("store")["steps"]) == 4
    assert client.get("tree", of="a:4")["n_tensors"] == 2


def test_an_empty_state_has_an_answer_for_everything(view, tmp_path: Path) -> None:
    tensorkeep.save({}, tmp_path / "a.safetensors")
    client = view(tmp_path / "a.safetensors")

    assert client.get("tree")["n_tensors"] == 0
    assert client.get("state")["n_children"] == 0
    assert client.result("survey")["n_tensors"] == 0
    assert client.result("compare", a="a", b="a")["n_equal"] == 0
