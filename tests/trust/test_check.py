"""`check(trust=)`: what is checked, and what it is checked by, must have been signed."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import tensorkeep
from tensorkeep.errors import TrustError, UnsupportedError
from tensorkeep.signing import PrivateKey, sign
from tensorkeep.trust import Policy, Rule
from tests.support.signing.checkpoints import TAMPERINGS, save_checkpoint

KEY = PrivateKey.generate()
POLICY = Policy((Rule(keys=(KEY.public,)),))


@pytest.fixture
def signed(tmp_path: Path) -> Path:
    directory = save_checkpoint(tmp_path / "ckpt")
    sign(directory, KEY)
    return directory


def test_what_was_signed_is_checked(signed: Path) -> None:
    with ThreadPoolExecutor(1) as executor:
        by_workers = tensorkeep.check(signed, trust=POLICY, data=True, executor=executor)

    assert tensorkeep.check(signed, trust=POLICY, data=True) == by_workers
    assert by_workers.n_tensors == 6


@pytest.mark.parametrize("what", ["a byte of the index", "another whole checkpoint"])
def test_another_checkpoint_is_no_finding(signed: Path, what: str) -> None:
    TAMPERINGS[what](signed)
    (signed / "model-00009-of-00009.safetensors").write_bytes(b"")  # without a policy, that would be a finding
    with pytest.raises(TrustError):
        tensorkeep.check(signed, trust=POLICY)


def test_the_configuration_beside_it_must_be_signed(signed: Path) -> None:
    (signed / "config.json").write_text(json.dumps({"num_hidden_layers": 3}))
    assert tensorkeep.check(signed).n_tensors == 6
    with pytest.raises(TrustError, match=r"config\.json"):
        tensorkeep.check(signed, trust=POLICY)


def test_what_it_is_compared_with_must_be_signed(signed: Path, tmp_path: Path) -> None:
    other = save_checkpoint(tmp_path / "other")
    with pytest.raises(TrustError):
        tensorkeep.check(signed, against=other, trust=POLICY)
    sign(other, KEY)
    assert tensorkeep.check(signed, against=other, trust=POLICY).fit is not None


def test_what_is_open_was_opened_with_its_policy(signed: Path) -> None:
    with tensorkeep.open(signed) as opened, pytest.raises(UnsupportedError, match="`trust` is for what is not open"):
        tensorkeep.check(opened, trust=POLICY)
