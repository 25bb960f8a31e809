"""`trust=`: nothing is opened or read that trusted signatures do not prove."""

from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

import tensorkeep
from tensorkeep.errors import IntegrityError, TrustError, UnsupportedError
from tensorkeep.quantized import dequantize
from tensorkeep.server import Server
from tensorkeep.signing import PrivateKey, sign
from tensorkeep.tensors import LazyTensors
from tensorkeep.trust import Policy, Rule
from tests.support.formats.paddle_files import written_by_paddle
from tests.support.signing.checkpoints import SHARD, TAMPERINGS, save_checkpoint

KEY, OTHER = PrivateKey.generate(), PrivateKey.generate()
POLICY = Policy((Rule(keys=(KEY.public,)),))
SEEN_AT_OPEN = {
    "a byte of a header",
    "a byte of the index",
    "another whole checkpoint",
    "a missing shard",
}


@pytest.fixture
def signed(tmp_path: Path) -> Path:
    directory = save_checkpoint(tmp_path / "ckpt")
    sign(directory, KEY)
    return directory


def read_all(path: Any) -> dict[str, Any]:
    with tensorkeep.open(path, trust=POLICY) as opened:
        return {name: lazy[1:3] for name, lazy in opened.items()} | opened.load()


@pytest.mark.parametrize("what", TAMPERINGS)
def test_what_changed_is_not_loaded(signed: Path, what: str) -> None:
    before = read_all(signed)
    TAMPERINGS[what](signed)

    if what in SEEN_AT_OPEN:
        with pytest.raises((IntegrityError, OSError)):
            tensorkeep.open(signed, trust=POLICY)
    elif what == "a byte of a tensor":
        with pytest.raises(IntegrityError):
            read_all(signed)
        with pytest.raises(IntegrityError):
            tensorkeep.load(signed, trust=POLICY)
    else:
        assert {name: value.tolist() for name, value in read_all(signed).items()} == {
            name: value.tolist() for name, value in before.items()
        }


def test_each_byte_of_a_slice_is_checked(signed: Path) -> None:
    with tensorkeep.open(signed) as plain:
        name = next(name for name in plain if plain.shard_of(name) == SHARD)
        start = plain.shards[SHARD].span_of(name).start
    for at in range(0, 4000, 271):
        content = bytearray((signed / SHARD).read_bytes())
        content[start + at] ^= 1
        (signed / SHARD).write_bytes(content)
        with tensorkeep.open(signed, trust=POLICY) as opened, pytest.raises(IntegrityError):
            opened[name][at // 500]
        content[start + at] ^= 1
        (signed / SHARD).write_bytes(content)


def test_a_shard_alone_is_proven_by_its_header(signed: Path) -> None:
    assert tensorkeep.load(signed / SHARD, trust=POLICY)
    shutil.copy(signed / "model-00001-of-00003.safetensors", signed / SHARD)
    with pytest.raises(TrustError, match="not the file that was signed"):
        tensorkeep.open(signed / SHARD, trust=POLICY)


def test_a_single_file_is_proven_by_its_header(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    tensorkeep.save({"w": np.arange(100.0)}, path)
    with pytest.raises(TrustError, match="no trusted signature"):
        tensorkeep.open(path, trust=POLICY)
    sign(path, KEY)
    assert tensorkeep.load(path, trust=POLICY)["w"][3] == 3
    sign(path, OTHER)
    assert tensorkeep.load(path, trust=POLICY)["w"][3] == 3
    tensorkeep.save({"w": np.zeros(100)}, tmp_path / "other.safetensors")
    shutil.copy(tmp_path / "other.safetensors", path)
    with pytest.raises(TrustError, match="not the file that was signed"):
        tensorkeep.open(path, trust=POLICY)


def without_digests(directory: Path) -> None:
    """Write a checkpoint again as transformers would."""
    index = json.loads((directory / "model.safetensors.index.json").read_text())
    del index["metadata"]["tensorkeep"]
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))
    for shard in directory.glob("*.safetensors"):
        save_file(load_file(shard), shard, {"format": "pt"})


@pytest.mark.parametrize("is_sealed", [True, False])
def test_a_signature_of_model_signing_is_enough(tmp_path: Path, is_sealed: bool) -> None:
    """Without signed headers, the index proves shards that it has digests of, and other files are read whole."""
    from model_signing import signing

    KEY.write(tmp_path / "key.pem")
    directory = tmp_path / "ckpt"
    state = {f"w{i}": np.full(1000, i, np.float32) for i in range(4)}
    tensorkeep.save_checkpoint(state, directory, max_shard_size="8KB")
    if not is_sealed:
        without_digests(directory)
    signing.Config().use_elliptic_key_signer(private_key=tmp_path / "key.pem").sign(
        directory, directory / "model.sig"
    )

    assert tensorkeep.load(directory, trust=POLICY)["w3"][0] == 3
    shard = directory / "model-00002-of-00002.safetensors"
    content = bytearray(shard.read_bytes())
    content[-1] ^= 1
    shard.write_bytes(content)
    with pytest.raises(IntegrityError):
        tensorkeep.load(directory, trust=POLICY)
    if not is_sealed:
        with pytest.raises(TrustError):
            tensorkeep.open(directory, trust=POLICY)


def save_npz(directory: Path) -> Path:
    np.savez(directory / "w.npz", w=np.arange(5))
    return directory / "w.npz"


def save_pickles(directory: Path) -> Path:
    import torch

    torch.save({"w": torch.ones(3)}, directory / "pytorch_model.bin")
    return directory


@pytest.mark.parametrize("save", [save_npz, save_pickles])
def test_other_formats_are_read_whole(tmp_path: Path, save: Callable[[Path], Path]) -> None:
    directory = tmp_path / "ckpt"
    directory.mkdir()
    path = save(directory)
    sign(path, KEY)
    policy = Policy((Rule(keys=(KEY.public,), pickles=True),))

    assert "w" in tensorkeep.load(path, trust=policy)
    file = next(each for each in directory.iterdir() if each.suffix != ".sig")
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    with pytest.raises(TrustError, match="not the file that was signed"):
        tensorkeep.open(path, trust=policy)


def test_files_in_a_directory_that_a_format_could_read_must_be_signed(tmp_path: Path) -> None:
    directory = tmp_path / "ckpt"
    directory.mkdir()
    save_pickles(directory)
    sign(directory, KEY)
    policy = Policy((Rule(keys=(KEY.public,), pickles=True),))

    (directory / "pytorch_model-00001-of-00002.bin").write_bytes(b"")
    with pytest.raises(TrustError, match="not signed"):
        tensorkeep.open(directory, trust=policy)


def test_pickles_and_formats_are_refused_by_the_rule(tmp_path: Path, signed: Path) -> None:
    directory = tmp_path / "pickles"
    directory.mkdir()
    sign(save_pickles(directory), KEY)

    with pytest.raises(TrustError, match="does not allow pickles"):
        tensorkeep.open(directory, trust=POLICY)
    only = Policy((Rule(keys=(KEY.public,), formats=("gguf", "npz")),))
    with pytest.raises(TrustError, match="does not allow this format"):
        tensorkeep.open(signed, trust=only)
    sign(save_npz(tmp_path), KEY)
    assert tensorkeep.load(tmp_path / "w.npz", trust=only)["w"][4] == 4


def save_program(path: Path) -> Path:
    torch.export.save(torch.export.export(torch.nn.Linear(4, 2), (torch.ones(1, 4),)), path)
    return path


def test_pickles_in_other_formats_are_refused_by_the_rule(tmp_path: Path) -> None:
    plain, mixed = tmp_path / "plain.npz", tmp_path / "mixed.npz"
    np.savez(plain, w=np.ones(3))
    np.savez(mixed, w=np.ones(3), words=np.array([{}], dtype=object))
    program = save_program(tmp_path / "program.pt2")
    for path in (plain, mixed, program):
        sign(path, KEY)
    allowed = Policy((Rule(keys=(KEY.public,), pickles=True),))

    assert set(tensorkeep.load(plain, trust=POLICY)) == {"w"}
    for path, name, found in ((mixed, "w", "'words'"), (program, "weight", r"model\.pt")):
        with pytest.raises(TrustError, match=rf"does not allow pickles[\s\S]*{found}"):
            tensorkeep.open(path, trust=POLICY)
        with pytest.raises(TrustError, match="does not allow pickles"):
            tensorkeep.convert(path, tmp_path / "converted", trust=POLICY)
        with tensorkeep.open(path, trust=allowed) as opened:
            assert name in opened
    assert not (tmp_path / "converted").exists()


def test_digests_can_be_demanded(tmp_path: Path, signed: Path) -> None:
    strict = Policy((Rule(keys=(KEY.public,), digests=True),))
    assert tensorkeep.load(signed, trust=strict)
    tensorkeep.save({"w": np.ones(3)}, tmp_path / "w.safetensors", digests=False)
    sign(tmp_path / "w.safetensors", KEY)
    sign(save_npz(tmp_path), KEY)

    assert tensorkeep.load(tmp_path / "w.safetensors", trust=POLICY)
    with pytest.raises(TrustError, match="digests"):
        tensorkeep.open(tmp_path / "w.safetensors", trust=strict)
    with pytest.raises(TrustError, match="digest"):
        tensorkeep.open(tmp_path / "w.npz", trust=strict)
    unsigned = Policy((Rule(signatures=0, digests=True),))
    with pytest.raises(UnsupportedError, match="no digests"):
        tensorkeep.open(tmp_path / "w.safetensors", trust=unsigned)


def test_over_http(tmp_path: Path, signed: Path) -> None:
    tensorkeep.save({"w": np.ones(3)}, tmp_path / "plain.safetensors", digests=False)
    sign(tmp_path / "plain.safetensors", KEY)
    with Server(tmp_path, port=0) as server:
        assert read_all(server.url + "ckpt/")["w3"][0, 0] == 3
        assert tensorkeep.verify(server.url + "ckpt/", trust=POLICY).is_whole
        with pytest.raises(TrustError, match="Fetch it first"):
            tensorkeep.open(server.url + "plain.safetensors", trust=POLICY)
        (signed / "model.sig").unlink()
        with pytest.raises(TrustError, match="no trusted signature"):
            tensorkeep.open(server.url + "ckpt/", trust=POLICY)


def test_what_has_no_signature_is_refused(tmp_path: Path, signed: Path) -> None:
    content = (signed / SHARD).read_bytes()
    with pytest.raises(UnsupportedError, match="no signature beside"):
        tensorkeep.open(content, trust=POLICY)
    with pytest.raises(UnsupportedError, match="exclude"):
        tensorkeep.open(signed, trust=POLICY, check=False)


def test_the_environment_names_a_policy(tmp_path: Path, signed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    OTHER.write(tmp_path / "other.pem")
    monkeypatch.setenv("TENSORKEEP_TRUST", str(tmp_path / "other.pub"))

    with pytest.raises(TrustError, match="another key"):
        tensorkeep.open(signed)
    assert tensorkeep.load(signed, trust=POLICY)
    assert not tensorkeep.verify(signed)
    monkeypatch.setenv("TENSORKEEP_TRUST", str(tmp_path / "missing.toml"))
    with pytest.raises(FileNotFoundError):
        tensorkeep.open(signed)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TENSORKEEP_TRUST", "other.pub")
    with pytest.raises(UnsupportedError, match="not an absolute path"):
        tensorkeep.open(signed)


@pytest.mark.parametrize("where", ["ckpt", "ckpt/code", "ckpt/deeper/still"])
def test_no_policy_comes_from_the_checkpoint(tmp_path: Path, signed: Path, where: str) -> None:
    (tmp_path / where).mkdir(parents=True, exist_ok=True)
    KEY.write(tmp_path / where / "key.pem")
    (tmp_path / where / "tensorkeep.toml").write_text('[[rules]]\nkeys = ["key.pub"]\n')
    (tmp_path / "link.toml").symlink_to(tmp_path / where / "tensorkeep.toml")
    (tmp_path / "alias").symlink_to(signed)

    for policy in (f"{where}/key.pub", f"{where}/tensorkeep.toml", "link.toml"):
        for path in ("ckpt", "alias", "ckpt/model.safetensors.index.json"):
            if path.endswith("json") and where != "ckpt":
                continue
            with pytest.raises(TrustError, match="never read from the checkpoint's own directory"):
                tensorkeep.open(tmp_path / path, trust=tmp_path / policy)


def test_verify_looks_only_at_a_file_that_is_given(tmp_path: Path, signed: Path) -> None:
    (signed / "config.json").write_text("[1]")
    tensorkeep.save({"w": np.ones(3)}, signed / "adapter.safetensors", digests=False)

    assert tensorkeep.verify(signed / SHARD, trust=POLICY).is_whole
    assert not tensorkeep.verify(signed, trust=POLICY)
    found = tensorkeep.verify(signed / "adapter.safetensors", trust=POLICY).findings
    assert [(finding.kind, finding.shard) for finding in found] == [("unsigned", "adapter.safetensors")]


def test_verify_demands_digests_of_tensors_only(tmp_path: Path, signed: Path) -> None:
    strict = Policy((Rule(keys=(KEY.public,), digests=True),))

    assert tensorkeep.verify(signed, trust=strict).is_whole
    tensorkeep.save({"w": np.ones(3)}, signed / "adapter.safetensors", digests=False)
    sign(signed, KEY)
    found = tensorkeep.verify(signed, trust=strict).findings
    assert [(finding.kind, finding.shard) for finding in found] == [("unsigned", "adapter.safetensors")]


@pytest.fixture
def quantized(tmp_path: Path) -> Path:
    """A signed checkpoint whose numbers depend on `config.json`."""
    rng = np.random.default_rng(0)
    parts = {"qweight": (16, 8), "qzeros": (1, 1)}
    state = {f"w.{name}": rng.integers(0, 2**31, shape, np.int32) for name, shape in parts.items()}
    directory = tmp_path / "quantized"
    directory.mkdir()
    state |= {"w.g_idx": np.zeros(128, np.int32), "w.scales": np.ones((1, 8), np.float16)}
    save_file(state, directory / "model.safetensors")
    set_format(directory, "gptq")
    sign(directory, KEY)
    return directory


def set_format(directory: Path, name: str) -> None:
    config = {"quant_method": "gptq", "bits": 4, "group_size": 128, "checkpoint_format": name}
    (directory / "config.json").write_text(json.dumps({"quantization_config": config}))


def test_numbers_are_not_computed_by_settings_that_nobody_signed(quantized: Path) -> None:
    def number() -> float:
        with tensorkeep.open(quantized, trust=POLICY) as opened:
            view = dequantize(opened.rename(lambda name: "a." + name), "f32")
            loaded = tensorkeep.load(quantized, trust=POLICY, dequantize="f32")
            assert view["a.w.weight"][0, 0] == loaded["w.weight"][0, 0]
            return float(loaded["w.weight"][0, 0])

    before = number()
    set_format(quantized, "gptq_v2")
    assert tensorkeep.load(quantized, dequantize="f32")["w.weight"][0, 0] != before
    with pytest.raises(TrustError, match=r"`config\.json` is not the file that was signed"):
        number()
    (quantized / "config.json").unlink()
    with pytest.raises(TrustError, match=r"`config\.json` was signed"):
        number()
    set_format(quantized, "gptq")
    (quantized / "hf_quant_config.json").write_text("{}")
    assert number() == before


VIEWS: dict[str, Callable[[Any], LazyTensors]] = {
    "numbers": lambda opened: dequantize(opened, "f32"),
    "computed": lambda opened: tensorkeep.combine(lambda a, b: a + b, opened, opened),
    "a view of a view": lambda opened: dequantize(opened, "f32").select("*").rename(lambda name: "a." + name),
}


@pytest.mark.parametrize("name", VIEWS)
def test_files_beside_a_view_are_proven_too(quantized: Path, name: str) -> None:
    with tensorkeep.open(quantized, trust=POLICY) as opened:
        view = VIEWS[name](opened)
        assert b"gptq" in view.companion("config.json", max_nbytes=10_000)
        set_format(quantized, "gptq_v2")
        with pytest.raises(TrustError, match=r"`config\.json` is not the file that was signed"):
            view.companion("config.json", max_nbytes=10_000)


def test_a_policy_in_the_environment_is_not_about_what_is_just_written(
    tmp_path: Path, signed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    KEY.write(tmp_path / "key.pem")
    monkeypatch.setenv("TENSORKEEP_TRUST", str(tmp_path / "key.pub"))

    tensorkeep.convert(signed, tmp_path / "converted")
    store = tensorkeep.CheckpointStore(tmp_path / "run")
    store.save(1, {"w": np.arange(3)})
    assert store.load()["w"].tolist() == [0, 1, 2]


def test_a_policy_in_the_environment_is_about_bytes_too(
    tmp_path: Path, signed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    KEY.write(tmp_path / "key.pem")
    monkeypatch.setenv("TENSORKEEP_TRUST", str(tmp_path / "key.pub"))

    for read in (tensorkeep.deserialize, tensorkeep.load):
        with pytest.raises(UnsupportedError, match="bytes have no signature"):
            read((signed / SHARD).read_bytes())


def test_a_view_without_a_policy_keeps_no_file(tmp_path: Path) -> None:
    torch.save({"w": torch.ones(3)}, tmp_path / "w.pt")
    with tensorkeep.open(tmp_path / "w.pt") as opened:  # which cannot be pickled
        view = opened.select("w").rename({"w": "v"})
        assert pickle.loads(pickle.dumps(view)).load()["v"].tolist() == [1, 1, 1]


@pytest.mark.parametrize("where", ["disk", "server"])
def test_a_signed_index_cannot_be_left_out(tmp_path: Path, where: str) -> None:
    directory = tmp_path / "ckpt"
    state = {"model": {"w": np.ones(4, np.float32)}, "step": 500}
    tensorkeep.save_checkpoint(state, directory, sha256=True)
    sign(directory, KEY)
    with Server(tmp_path, port=0) as server:
        path = str(directory) if where == "disk" else server.url + "ckpt/"
        assert tensorkeep.load(path, trust=POLICY)["step"] == 500
        (directory / "model.safetensors.index.json").unlink()

        with pytest.raises(TrustError, match=r"index\.json` was signed, and is missing"):
            tensorkeep.load(path, trust=POLICY)
        assert tensorkeep.load(directory / "model.safetensors", trust=POLICY)


def test_a_companion_of_verified_tensors_is_proven_too(signed: Path) -> None:
    (signed / "config.json").write_text('{"evil": 1}')
    with tensorkeep.open(signed / SHARD, trust=POLICY) as opened, pytest.raises(TrustError, match="not the file"):
        opened.verified().companion("config.json", max_nbytes=100)


@pytest.mark.parametrize("suffix", [".pdmodel", ".pdiparams.info"])
def test_files_beside_one_that_say_what_its_tensors_are_must_be_signed(tmp_path: Path, suffix: str) -> None:
    model = tmp_path / "model"
    model.mkdir()
    for file in written_by_paddle().glob("inference_pdmodel.pd*"):
        shutil.copy(file, model)
    sign(model, KEY)
    policy = Policy((Rule(keys=(KEY.public,), pickles=True),))
    assert tensorkeep.load(model / "inference_pdmodel.pdiparams", trust=policy)

    beside = model / f"inference_pdmodel{suffix}"
    beside.write_bytes(beside.read_bytes().replace(b"weight", b"xeight").replace(b"linear", b"xinear"))
    with pytest.raises(TrustError, match="not the file that was signed"):
        tensorkeep.open(model / "inference_pdmodel.pdiparams", trust=policy)
