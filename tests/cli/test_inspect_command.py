"""`tensorkeep inspect`."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import safetensors
import safetensors.numpy
from typer.testing import CliRunner

import tensorkeep
from tensorkeep.cli import app, main


def inspect(*arguments: object) -> str:
    result = CliRunner().invoke(app, ["inspect", *map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == 0
    assert result.stderr == ""
    return result.stdout


def inspect_json(*arguments: object) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(inspect("--json", *arguments))
    return report


def words(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_the_real_model(run: Any, minilm: str) -> None:
    done = run("inspect", minilm)

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        minilm,
        "  file       90,868,376 bytes (90.9 MB)",
        "  tensors    104 (22,713,728 parameters)",
        "  header     11,408 bytes",
        "  data       from byte 11,416 (aligned to 8 bytes)",
        "  alignment  every tensor starts at a multiple of its element size",
        "  metadata   format = pt",
        "",
        "module                           tensors  dtype  shape            size   share",
        "embeddings                             6                       47.7 MB  52.5 %",
        "├─ LayerNorm                           2                       3.07 kB  <0.1 %",
        "│  ├─ bias                                F32    [384]         1.54 kB  <0.1 %",
        "│  └─ weight                              F32    [384]         1.54 kB  <0.1 %",
        "├─ position_embeddings.weight             F32    [512, 384]     786 kB   0.9 %",
        "├─ position_ids                           I64    [1, 512]      4.10 kB  <0.1 %",
        "├─ token_type_embeddings.weight           F32    [2, 384]      3.07 kB  <0.1 %",
        "└─ word_embeddings.weight                 F32    [30522, 384]  46.9 MB  51.6 %",
        "encoder.layer.0..5 (6x)               96                       42.6 MB  46.9 %",
        "├─ attention                          60                       14.2 MB  15.6 %",
        "│  ├─ output                          24                       3.57 MB   3.9 %",
        "│  │  ├─ LayerNorm                    12                       18.4 kB  <0.1 %",
        "│  │  │  ├─ bias                       6  F32    [384]         9.22 kB  <0.1 %",
        "│  │  │  └─ weight                     6  F32    [384]         9.22 kB  <0.1 %",
        "│  │  └─ dense                        12                       3.55 MB   3.9 %",
        "│  │     ├─ bias                       6  F32    [384]         9.22 kB  <0.1 %",
        "│  │     └─ weight                     6  F32    [384, 384]    3.54 MB   3.9 %",
        "│  └─ self                            36                       10.6 MB  11.7 %",
        "│     ├─ key                          12                       3.55 MB   3.9 %",
        "│     │  ├─ bias                       6  F32    [384]         9.22 kB  <0.1 %",
        "│     │  └─ weight                     6  F32    [384, 384]    3.54 MB   3.9 %",
        "│     ├─ query                        12                       3.55 MB   3.9 %",
        "│     │  ├─ bias                       6  F32    [384]         9.22 kB  <0.1 %",
        "│     │  └─ weight                     6  F32    [384, 384]    3.54 MB   3.9 %",
        "│     └─ value                        12                       3.55 MB   3.9 %",
        "│        ├─ bias                       6  F32    [384]         9.22 kB  <0.1 %",
        "│        └─ weight                     6  F32    [384, 384]    3.54 MB   3.9 %",
        "├─ intermediate.dense                 12                       14.2 MB  15.6 %",
        "│  ├─ bias                             6  F32    [1536]        36.9 kB  <0.1 %",
        "│  └─ weight                           6  F32    [1536, 384]   14.2 MB  15.6 %",
        "└─ output                             24                       14.2 MB  15.6 %",
        "   ├─ LayerNorm                       12                       18.4 kB  <0.1 %",
        "   │  ├─ bias                          6  F32    [384]         9.22 kB  <0.1 %",
        "   │  └─ weight                        6  F32    [384]         9.22 kB  <0.1 %",
        "   └─ dense                           12                       14.2 MB  15.6 %",
        "      ├─ bias                          6  F32    [384]         9.22 kB  <0.1 %",
        "      └─ weight                        6  F32    [384, 1536]   14.2 MB  15.6 %",
        "pooler.dense                           2                        591 kB   0.7 %",
        "├─ bias                                   F32    [384]         1.54 kB  <0.1 %",
        "└─ weight                                 F32    [384, 384]     590 kB   0.6 %",
        "",
        "dtype  tensors  parameters     size    share",
        "F32        103  22,713,216  90.9 MB  100.0 %",
        "I64          1         512  4.10 kB   <0.1 %",
        "total      104  22,713,728  90.9 MB  100.0 %",
    ]


def test_json_says_all_that_the_header_says(minilm: str) -> None:
    raw = Path(minilm).read_bytes()
    (header_nbytes,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8 : 8 + header_nbytes])
    metadata = header.pop("__metadata__")

    report = inspect_json(minilm)
    tensors = report.pop("tensors")

    assert report == {
        "path": minilm,
        "format": "safetensors",
        "index": None,
        "shards": [
            {
                "shard": "model.safetensors",
                "nbytes": len(raw),
                "data_start": 8 + header_nbytes,
                "n_tensors": 104,
            }
        ],
        "splits": {},
        "digests": "none",
        "file_nbytes": len(raw),
        "header_nbytes": header_nbytes,
        "data_start": 8 + header_nbytes,
        "data_nbytes": len(raw) - 8 - header_nbytes,
        "n_tensors": 104,
        "n_elements": 22_713_728,
        "n_misaligned": 0,
        "n_unknown": 0,
        "unknowns": {},
        "strings": {},
        "dangers": {},
        "quantized": None,
        "metadata": metadata,
        "state": None,
        "shown": {"n_tensors": 104, "n_elements": 22_713_728, "data_nbytes": len(raw) - 8 - header_nbytes},
        "dtypes": [
            {"dtype": "F32", "n_tensors": 103, "n_elements": 22_713_216, "nbytes": 90_852_864},
            {"dtype": "I64", "n_tensors": 1, "n_elements": 512, "nbytes": 4096},
        ],
    }
    assert [list(tensor) for tensor in tensors] == [
        ["name", "dtype", "shape", "n_elements", "nbytes", "data_offsets", "shard"]
    ] * 104
    assert {tensor["shard"] for tensor in tensors} == {"model.safetensors"}
    assert {
        tensor["name"]: {key: tensor[key] for key in ("dtype", "shape", "data_offsets")} for tensor in tensors
    } == header
    assert [tensor["data_offsets"] for tensor in tensors] == sorted(
        entry["data_offsets"] for entry in header.values()
    )


def test_json_has_a_tensor_per_line(minilm: str) -> None:
    lines = [line for line in inspect("--json", minilm).splitlines() if '"data_offsets"' in line]

    assert len(lines) == 104
    assert all(json.loads(line.strip().rstrip(","))["nbytes"] for line in lines)


def test_json_of_a_file_without_tensors_or_metadata(write_file: Any) -> None:
    report = inspect_json(write_file({}))

    assert (report["n_tensors"], report["metadata"], report["dtypes"], report["tensors"]) == (0, None, [], [])


def test_flat_lists_every_tensor_at_its_place(minilm: str) -> None:
    with safetensors.safe_open(minilm, framework="np") as file:
        names = set(file.keys())
    rows = words(inspect("--flat", minilm))[9:-5]

    assert {row[0] for row in rows} == names
    assert rows[0] == ["embeddings.position_ids", "I64", "[1,", "512]", "4096", "<0.1", "%", "0", "4096"]
    assert [int(row[-2]) for row in rows] == [0, *(int(row[-1]) for row in rows[:-1])]
    assert all(int(row[-1]) - int(row[-2]) == int(row[-5 if row[-3] == "%" else -4]) for row in rows)


def test_flat_is_not_cut_at_80_columns(run: Any, write_file: Any) -> None:
    name = "model." + "very_long_name_" * 12 + "weight"

    for arguments in ([], ["--flat"]):
        done = run("inspect", *arguments, str(write_file({name: ("F32", (2,), 8)})))
        assert name in done.stdout


def test_expand_shows_each_layer(minilm: str) -> None:
    text = inspect("--expand", minilm)

    assert "(6x)" not in text
    assert len([line for line in text.splitlines() if "intermediate.dense" in line]) == 6


def test_filter_and_what_it_leaves_out(minilm: str) -> None:
    text = inspect("--filter", "*.self.query.bias", minilm)

    assert text.splitlines()[-1] == "shown 6 of 104 tensors"
    assert ["F32", "6", "2,304", "9.22", "kB", "<0.1", "%"] in words(text)
    assert "  tensors    104 (22,713,728 parameters)" in text
    assert "word_embeddings" not in text


def test_filter_is_about_whole_names_in_their_own_case(minilm: str) -> None:
    assert inspect_json("--filter", "pooler", minilm)["tensors"] == []
    assert inspect_json("--filter", "POOLER.*", minilm)["tensors"] == []
    assert [tensor["name"] for tensor in inspect_json("--filter", "pooler.dense.[bw]*t", minilm)["tensors"]] == [
        "pooler.dense.weight"
    ]


def test_json_counts_the_file_and_sums_what_is_shown(minilm: str) -> None:
    report = inspect_json("--filter", "pooler.*", minilm)

    assert (report["n_tensors"], report["data_nbytes"]) == (104, 90_856_960)
    assert report["shown"] == {"n_tensors": 2, "n_elements": 147_840, "data_nbytes": 591_360}
    assert report["dtypes"] == [{"dtype": "F32", "n_tensors": 2, "n_elements": 147_840, "nbytes": 591_360}]
    assert len(report["tensors"]) == 2


@pytest.mark.parametrize("view", [[], ["--flat"], ["--expand"]])
def test_a_filter_that_matches_nothing_gives_a_sentence_and_no_tables(minilm: str, view: list[str]) -> None:
    assert inspect("--filter", "pooler", *view, minilm).splitlines()[7:] == [
        "",
        "No tensor of 104 has a full name that matches 'pooler'.",
    ]
    assert r"matches '\x1b[2J'" in inspect("--filter", "\x1b[2J", minilm)


def test_a_file_without_tensors_gives_a_sentence_and_no_tables(write_file: Any) -> None:
    for arguments in ([], ["--flat"], ["--filter", "*"]):
        assert inspect(*arguments, write_file({})).splitlines()[7:] == ["", "The file has no tensors."]


HELP = "tensorkeep inspect --help"


@pytest.mark.parametrize("view", ["--flat", "--expand"])
def test_json_refuses_views(capsys: pytest.CaptureFixture[str], minilm: str, view: str) -> None:
    assert main(["inspect", "--json", view, minilm]) == 2
    captured = capsys.readouterr()
    assert captured.err == f"error: Invalid value for '{view}': it does not apply to --json (see {HELP})\n"
    assert json.loads(captured.out)["error"]["kind"] == "UsageError"


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("name", ["a", "b.2", "b.10", "c"]),
        ("size", ["b.10", "a", "c", "b.2"]),
        ("offset", ["c", "b.10", "b.2", "a"]),
        (None, ["c", "b.10", "b.2", "a"]),
    ],
)
def test_sorting(write_file: Any, order: str | None, expected: list[str]) -> None:
    path = write_file({name: ("U8", (size,), size) for name, size in (("c", 5), ("b.10", 9), ("b.2", 1), ("a", 5))})
    arguments = ["--sort", order] if order else []

    assert [tensor["name"] for tensor in inspect_json(path, *arguments)["tensors"]] == expected
    flat = inspect("--flat", path, *arguments).splitlines()
    assert [line.split()[0] for line in flat[9:13]] == expected


def test_every_dtype_and_those_that_are_not_known(write_file: Any, tmp_path: Path) -> None:
    path = write_file({
        "w": ("Q4_K", (32,), 18),
        "x": ("F4", (4,), 2),
        "y": ("BF16", (), 2),
        "z": ("F8_E8M0", (0, 3), 0),
    })

    report = inspect_json(path)
    assert {row["dtype"]: (row["n_elements"], row["nbytes"]) for row in report["dtypes"]} == {
        "Q4_K": (32, 18),
        "F4": (4, 2),
        "BF16": (1, 2),
        "F8_E8M0": (0, 0),
    }
    assert ["w", "Q4_K", "[32]", "18", "B", "81.8", "%"] in words(inspect(path))
    assert ["y", "BF16", "[]", "2", "B", "9.1", "%"] in words(inspect(path))


@pytest.mark.parametrize("padding", range(8))
def test_tensors_that_do_not_start_at_a_multiple_of_their_element_size(write_file: Any, padding: int) -> None:
    tensors = {"a": ("U8", (1,), 1), "b": ("F32", (1,), 4), "c": ("F64", (0,), 0), "d": ("F4", (2,), 1)}
    path = write_file(tensors, padding=padding)

    report = inspect_json(path)
    is_misaligned = (report["data_start"] + 1) % 4 != 0
    text = "1 tensor does not start at a multiple of the element size"

    assert report["n_misaligned"] == is_misaligned
    assert (text in inspect(path)) == is_misaligned


@pytest.mark.parametrize(
    ("start", "text"),
    [
        (256, "aligned to 64 bytes"),
        (192, "aligned to 64 bytes"),
        (160, "aligned to 32 bytes"),
        (132, "aligned to 4 bytes"),
        (131, "not aligned"),
    ],
)
def test_where_the_data_starts(write_file: Any, start: int, text: str) -> None:
    tensors = {"a": ("U8", (1,), 1)}
    unpadded = inspect_json(write_file(tensors))["data_start"]

    assert f"from byte {start} ({text})" in inspect(write_file(tensors, padding=start - unpadded))


def test_metadata_is_shown_shortened_and_kept_whole_in_json(write_file: Any) -> None:
    metadata = {"format": "pt", "card": "long text " * 500} | {f"key{number}": "" for number in range(30)}
    path = write_file({"a": ("U8", (1,), 1)}, metadata)

    text = inspect(path)
    assert "card = long text long text" in text
    assert "... (5,000 characters)" in text
    assert "and 12 more keys (all with --json)" in text
    assert inspect_json(path)["metadata"] == metadata
    assert words(inspect(write_file({}, {})))[6] == ["metadata", "empty"]
    assert words(inspect(write_file({})))[6] == ["metadata", "none"]


def test_a_file_of_the_reference_library(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    tensors = {
        f"block.{number}.{part}": np.zeros((3, 5), dtype)
        for number in range(3)
        for part, dtype in (("w", ml_dtypes.bfloat16), ("scale", np.float16))
    }
    safetensors.numpy.save_file(tensors, path, {"made": "here"})

    assert ["block.0..2", "(3x)", "6", "180", "B", "100.0", "%"] in words(inspect(path))


def test_many_tensors_that_do_not_fold(run: Any, write_file: Any) -> None:
    path = str(write_file({f"m{n % 97}.{n}x.{n * n}": ("U8", (n % 7,), n % 7) for n in range(50_000)}))

    assert len(run("inspect", "--flat", path).stdout.splitlines()) > 50_000
    assert len(run("inspect", path).stdout.splitlines()) > 50_000
    assert len(json.loads(run("inspect", "--json", path).stdout)["tensors"]) == 50_000


def test_quantized_tensors_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    layer = {"weight_packed": np.zeros((8, 16), np.uint8), "weight_global_scale": np.ones(1, np.float32)}
    scales = {"weight_scale": np.zeros((8, 2), np.uint8)}
    tensors = {f"layers.{n}.{name}": array for n in range(3) for name, array in {**layer, **scales}.items()}
    del tensors["layers.2.weight_scale"]
    tensorkeep.save({**tensors, "ids": np.zeros(3, np.int32)}, tmp_path / "model.safetensors")

    for path in (tmp_path, tmp_path / "model.safetensors"):
        assert main(["inspect", str(path)]) == 0
        lines = capsys.readouterr().out.splitlines()
        at = next(place for place, line in enumerate(lines) if line.startswith("  quantized"))
        assert lines[at].endswith("quantized  2 tensors: nvfp4-pack-quantized: e2m1, groups of 16")
        assert lines[at + 1].strip() == "there is 1 finding: see `tensorkeep check`"
    assert main(["inspect", str(path), "--json"]) == 0
    expected = {"method": None, "n_by_scheme": {"nvfp4-pack-quantized: e2m1, groups of 16": 2}, "n_findings": 1}
    assert json.loads(capsys.readouterr().out)["quantized"] == expected
    with tensorkeep.open(path) as opened:
        assert "2 quantized tensors" in opened._repr_html_()
    (tmp_path / "config.json").write_text("{")  # `check` says what is wrong with it
    assert main(["inspect", str(path)]) == 0
    assert "  quantized  " not in capsys.readouterr().out
