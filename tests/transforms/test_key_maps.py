"""Key maps: both directions, what they refuse, and the holes that they find."""

from __future__ import annotations

import itertools
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers.core_model_loading import PermuteForRope

import tensorkeep
from tensorkeep.cli import main
from tensorkeep.errors import FormatError, RefusedError, TensorkeepError, TensorNotFoundError
from tensorkeep.transforms import KeyMap

MAP = """
about = "all that a map can say"

[[rules]]
from = "tok.weight"
to = "embed.weight"

[[rules]]
from = "h.{n}.qkv.weight"
to = ["layers.{n}.q.weight", "layers.{n}.k.weight", "layers.{n}.v.weight"]
sizes = [8, 4, 4]

[[rules]]
from = "h.{n}.mlp.{*rest}.kernel"
to = "layers.{n}.mlp.{*rest}.weight"
order = [1, 0]

[[rules]]
from = "h.{n}.wq"
to = "layers.{n}.wq"
heads = 2

[[rules]]
from = ["h.{n}.{e}.gate", "h.{n}.{e}.up"]
to = "layers.{n}.experts"
stack = "e"
along = 1
"""


@pytest.fixture
def model() -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    tensors = {"tok.weight": random.random((5, 4))}
    for n in range(2):
        tensors |= {
            f"h.{n}.qkv.weight": random.random((16, 4)),
            f"h.{n}.mlp.fc.kernel": random.random((4, 6)),
            f"h.{n}.wq": random.random((12, 4)),
        }
        tensors |= {f"h.{n}.{e}.{part}": random.random((2, 3)) for e in range(3) for part in ("gate", "up")}
    return tensors


@pytest.fixture
def file(tmp_path: Path, model: dict[str, np.ndarray]) -> tensorkeep.LazyTensors:
    tensorkeep.save(model, tmp_path / "model.safetensors", metadata={"kept": "yes"})
    return tensorkeep.open(tmp_path / "model.safetensors", framework="torch")


def test_forms(file: tensorkeep.LazyTensors, model: dict[str, np.ndarray]) -> None:
    view = KeyMap.parse(MAP).apply(file)

    assert view.metadata["kept"] == "yes"
    arrays = {name: lazy.numpy() for name, lazy in view.load().items()}
    qkv = np.split(model["h.1.qkv.weight"], [8, 12])
    assert [np.array_equal(arrays[f"layers.1.{part}.weight"], want) for part, want in zip("qkv", qkv, strict=True)]
    assert np.array_equal(arrays["layers.0.mlp.fc.weight"], model["h.0.mlp.fc.kernel"].T)
    stacked = [np.concatenate([model[f"h.0.{e}.gate"], model[f"h.0.{e}.up"]], 1) for e in range(3)]
    assert np.array_equal(arrays["layers.0.experts"], np.stack(stacked))
    for name, lazy in view.items():
        for index in itertools.islice(((slice(None, None, 2), 1), (-1,), (..., slice(1, 3))), 3):
            assert np.array_equal(lazy[index[: lazy.ndim]].numpy(), arrays[name][index[: lazy.ndim]])
    again = pickle.loads(pickle.dumps(view))
    assert all(np.array_equal(lazy.load().numpy(), arrays[name]) for name, lazy in again.items())


def test_heads_are_permuted_as_transformers_does(file: tensorkeep.LazyTensors, model: dict[str, np.ndarray]) -> None:
    class Config:
        num_attention_heads = 2

    given = torch.from_numpy(model["h.0.wq"])
    for inverse in (False, True):
        expected = PermuteForRope(inverse=inverse)._permute_for_rope(given, Config)
        key_map = KeyMap.parse('others = "drop"\n[[rules]]\nfrom = "h.0.wq"\nto = "h.0.wq"\nheads = 2')
        made = (key_map.inverse() if inverse else key_map).apply(file)["h.0.wq"]
        assert torch.equal(made.load(), expected)


def test_there_and_back(tmp_path: Path, file: tensorkeep.LazyTensors) -> None:
    (tmp_path / "map.toml").write_text(MAP)
    source, there, back = str(tmp_path / "model.safetensors"), str(tmp_path / "there"), str(tmp_path / "back")
    keys = ["--keys", str(tmp_path / "map.toml")]
    assert main(["reshard", source, there, *keys]) == 0
    assert main(["reshard", there, back, *keys, "--keys-back"]) == 0
    assert tensorkeep.diff(source, back).is_equal
    view = KeyMap.parse(MAP).apply(file)
    both = KeyMap.parse(MAP).inverse().apply(view)  # and without a file between them
    assert set(both) == set(file)
    assert all(torch.equal(lazy.load(), file[name].load()) for name, lazy in both.items())


def test_convert_renames(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.save({"a0": torch.ones(3), "a1": torch.zeros(2)}, tmp_path / "model.pt")
    (tmp_path / "map.toml").write_text('[[rules]]\nfrom = "a{n}"\nto = "layers.{n}.w"')
    words = ["convert", str(tmp_path / "model.pt"), str(tmp_path / "new"), "--keys", str(tmp_path / "map.toml")]
    assert main([*words, "--rename", "a0=b"]) == 2
    assert main(words) == 0
    assert set(tensorkeep.open(tmp_path / "new")) == {"layers.0.w", "layers.1.w"}
    (tmp_path / "map.toml").write_text('[[rules]]\nfrom = "a{n}"\nto = "w"\nstack = "n"')
    assert main([*words, "--force"]) == 2
    assert "reshard --keys" in capsys.readouterr().err


def test_holes(file: tensorkeep.LazyTensors) -> None:
    key_map = KeyMap.parse(MAP)
    right = [*key_map.apply(file)]
    assert key_map.compare(file, right).is_complete

    lost = [name for name in right if name not in {"layers.0.experts", "embed.weight"}]
    report = key_map.compare([*file, "new"], [*lost, "head.weight", "layers.9.wq"])
    assert report.unmatched_left == ("new",)
    assert report.unmatched_right == ("head.weight",)
    assert set(report.missing_right) == {"tok.weight", "h.0.0.gate"}
    assert report.missing_left == ("layers.9.wq",)
    assert key_map.compare(["tok.weight"], ()).unused[0] == "h.{n}.qkv.weight"


RULE = '[[rules]]\nfrom = "a{n}"\nto = "b{n}"\n'


@pytest.mark.parametrize(
    ("text", "names", "message"),
    [
        (RULE, ["a0", "x", "y"], "no rule of the key map matches 2 tensors"),
        (RULE + '[[rules]]\nfrom = "a{n:0-3}"\nto = "c{n}"', ["a1"], "two rules of the key map match `a1`"),
        (RULE + '[[rules]]\nfrom = "c{n}"\nto = "b{n}"', ["a1", "c1"], "two tensors would be called `b1`"),
        ('others = "keep"\n' + RULE, ["a1", "b1"], "two tensors would be called `b1`"),
        ('[[rules]]\nfrom = ["a", "b"]\nto = "c"', ["a"], "1 part of `c` is missing"),
        ('[[rules]]\nfrom = "a"\nto = "b"\norder = [1, 0]', ["a"], "does not fit its rule"),
        ('[[rules]]\nfrom = "a"\nto = "b"\nheads = 2', ["a"], "does not fit its rule"),
        ('[[rules]]\nfrom = "a"\nto = ["b", "c"]', ["a"], "does not fit its rule"),
        ('[[rules]]\nfrom = ["a", "b"]\nto = "c"\nalong = 1', ["a", "b"], "cannot be joined"),
    ],
)
def test_refused(tmp_path: Path, text: str, names: list[str], message: str) -> None:
    tensorkeep.save({name: np.ones(3) for name in names}, tmp_path / "model.safetensors")
    with tensorkeep.open(tmp_path / "model.safetensors") as file, pytest.raises(RefusedError, match=message) as info:
        KeyMap.parse(text).apply(file)
    assert info.value.path == str(tmp_path / "model.safetensors")


def test_leading_zeros_and_ranges(tmp_path: Path) -> None:
    tensorkeep.save({name: np.ones(3) for name in ("a0", "a01", "a7")}, tmp_path / "model.safetensors")
    file = tensorkeep.open(tmp_path / "model.safetensors")
    key_map = KeyMap.parse('others = "keep"\n[[rules]]\nfrom = "a{n:0-3}"\nto = "b{n:0-3}"')
    assert set(key_map.apply(file)) == {"b0", "a01", "a7"}
    assert set(file.rename(key_map.new_name)) == {"b0", "a01", "a7"}
    with pytest.raises(TensorNotFoundError, match="keys-back"):
        key_map.inverse().apply(file)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x = 1",
        "rules = []",
        "rules = [1]",
        "[[rules]]",
        '[[rules]]\nfrom = "a"\nto = 1',
        '[[rules]]\nfrom = []\nto = "b"',
        '[[rules]]\nfrom = "a"\nto = "b"\nwhat = 1',
        '[[rules]]\nfrom = ["a", "b"]\nto = ["c", "d"]',
        '[[rules]]\nfrom = "a{n}"\nto = "b"',
        '[[rules]]\nfrom = "a{n}"\nto = "b{m}"',
        '[[rules]]\nfrom = "a{n}"\nto = "b{n}"\nstack = "n"',
        '[[rules]]\nfrom = "a"\nto = "b"\nstack = "n"',
        '[[rules]]\nfrom = ["a{n}", "c"]\nto = "b"\nstack = "n"',
        '[[rules]]\nfrom = ["a", "c"]\nto = "b{n}"\nstack = "n"',
        '[[rules]]\nfrom = "a{n}{m}"\nto = "b{n}.{m}"',
        '[[rules]]\nfrom = "a{*n}.{*m}"\nto = "b{*n}.{*m}"',
        '[[rules]]\nfrom = "a{n}.{n}"\nto = "b{n}"',
        '[[rules]]\nfrom = "a{"\nto = "b"',
        '[[rules]]\nfrom = "a{*n:1-2}"\nto = "b{n}"',
        '[[rules]]\nfrom = "a"\nto = "b"\norder = [0, 0]',
        '[[rules]]\nfrom = "a"\nto = "b"\norder = [0.5]',
        '[[rules]]\nfrom = "a"\nto = "b"\nsizes = [1]',
        '[[rules]]\nfrom = "a"\nto = ["b", "c"]\nsizes = [1, -1]',
        '[[rules]]\nfrom = "a"\nto = "b"\nheads = true',
        '[[rules]]\nfrom = "a"\nto = "b"\nheads = 0',
        '[[rules]]\nfrom = "a"\nto = "b"\nalong = -1',
        'others = "all"\n' + RULE,
        "about = 1\n" + RULE,
        "a = [" * 5000,
        "[[rules]]\nfrom = '" + "a" * 2000 + "'\nto = 'b'",
    ],
    ids=str,
)
def test_malformed_maps(tmp_path: Path, text: str) -> None:
    (tmp_path / "map.toml").write_text(text)
    with pytest.raises(FormatError) as caught:
        KeyMap.read(tmp_path / "map.toml")
    assert caught.value.path == str(tmp_path / "map.toml")
    assert len(str(caught.value)) < 1000


def test_files_that_are_no_maps(tmp_path: Path) -> None:
    for content in (b"\xff\xfe", b"#" * (2**20 + 1)):
        (tmp_path / "map.toml").write_bytes(content)
        with pytest.raises(TensorkeepError):
            KeyMap.read(tmp_path / "map.toml")
    with pytest.raises(OSError, match="key map"):
        KeyMap.read(tmp_path / "missing")


@given(st.lists(st.text("ab.{}*:n0-9", max_size=12), min_size=2, max_size=2), st.text("ab.0129", max_size=12))
def test_any_pattern_is_refused_or_reversible(sides: list[str], name: str) -> None:
    try:
        key_map = KeyMap.parse('[[rules]]\nfrom = "{}"\nto = "{}"'.replace("{}", "%s") % tuple(sides))
        new = key_map.new_name(name)
        back = key_map.inverse().new_name(new)
    except TensorkeepError:
        return
    assert back == name or "*" in sides[0]
