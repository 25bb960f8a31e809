"""Links that ModelCheckpoint makes to the last checkpoint."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import torch

import tensorkeep
from tensorkeep.integrations.lightning import AsyncTensorkeepCheckpointIO, TensorkeepCheckpointIO
from tests.support.integrations.lightning.runs import Gate, checkpoints, files, fit

plugins = pytest.mark.parametrize("plugin", [TensorkeepCheckpointIO, AsyncTensorkeepCheckpointIO])


class Looking(TensorkeepCheckpointIO):
    """Looks whether the link leads to a checkpoint whenever a kill would make a difference."""

    def save_checkpoint(self, checkpoint: Any, path: Any, storage_options: Any = None) -> None:
        super().save_checkpoint(checkpoint, path, storage_options)
        self.look(path)

    def remove_checkpoint(self, path: Any) -> None:
        super().remove_checkpoint(path)
        self.look(path)

    def look(self, path: Any) -> None:
        link = Path(path).parent / "last.ckpt"
        if link.is_symlink():
            assert tensorkeep.verify(link).is_whole


class LookingAsync(Looking, AsyncTensorkeepCheckpointIO):
    pass


@pytest.mark.parametrize("plugin", [Looking, LookingAsync])
@pytest.mark.parametrize(
    "options", [{}, {"monitor": "step", "mode": "min"}, {"monitor": "step", "mode": "max", "save_top_k": 2}]
)
def test_a_link_to_the_last_always_leads_to_a_checkpoint(tmp_path: Path, plugin: Any, options: Any) -> None:
    def keeping() -> Any:
        return checkpoints(tmp_path, save_last="link", **options)

    first = fit(tmp_path, plugin(), callbacks=[keeping()], max_epochs=3)
    assert (tmp_path / "last.ckpt").readlink() == Path(first.checkpoint_callback._last_checkpoint_saved).relative_to(
        tmp_path
    )

    rest = fit(tmp_path, plugin(), callbacks=[keeping()], max_epochs=5, ckpt_path="last")
    assert rest.global_step == 30
    assert (tmp_path / "last.ckpt").exists()
    if not options:
        assert files(tmp_path) == ["epoch=4-step=30.ckpt", "last.ckpt"]
        assert (tmp_path / "last.ckpt").readlink() == Path("epoch=4-step=30.ckpt")


def test_a_save_in_the_background_waits_where_a_link_will_lead_to_it(tmp_path: Path) -> None:
    made, gate = AsyncTensorkeepCheckpointIO(), Gate(tmp_path)
    made.save_checkpoint({"epoch": 1}, tmp_path / "a.ckpt")
    (tmp_path / "last.ckpt").symlink_to("a.ckpt")
    opening = threading.Timer(0.2, gate.open)
    opening.start()

    made.save_checkpoint({"epoch": 2, "slow": gate.tensor}, tmp_path / "b.ckpt")

    assert files(tmp_path) == ["a.ckpt", "b.ckpt", "last.ckpt"]
    opening.join()


@plugins
def test_only_links_to_the_last_are_changed(tmp_path: Path, plugin: Any) -> None:
    made = plugin()
    for name in ("a.ckpt", "b.ckpt"):
        made.save_checkpoint({"name": name}, tmp_path / name)
    made.teardown()
    for link, target in {"last.ckpt": "a.ckpt", "last-v1.ckpt": "b.ckpt", "mine.ckpt": "a.ckpt"}.items():
        (tmp_path / link).symlink_to(target)
    (tmp_path / "last-v2.ckpt").symlink_to(tmp_path / "a.ckpt")
    (tmp_path / ".last.ckpt.tensorkeep-link").symlink_to("what a killed process left")

    made.remove_checkpoint(tmp_path / "a.ckpt")
    made.teardown()

    links = {path.name: str(path.readlink()) for path in tmp_path.iterdir() if path.is_symlink()}
    assert links == {"last.ckpt": "b.ckpt", "last-v1.ckpt": "b.ckpt", "last-v2.ckpt": "b.ckpt", "mine.ckpt": "a.ckpt"}


@pytest.mark.parametrize("is_dangling", [False, True])
@plugins
def test_a_link_is_replaced_and_what_it_leads_to_stays(tmp_path: Path, plugin: Any, is_dangling: bool) -> None:
    made = plugin()
    best, last = tmp_path / "best.ckpt", tmp_path / "last.ckpt"
    if not is_dangling:
        made.save_checkpoint({"epoch": 1, "w": torch.ones(3)}, best)
    last.symlink_to("best.ckpt")

    made.save_checkpoint({"epoch": 2, "w": torch.ones(3), "tied": [torch.zeros(2)]}, last)
    made.teardown()

    assert not last.is_symlink()
    assert made.load_checkpoint(last)["epoch"] == 2
    assert tensorkeep.verify(last).is_whole
    assert is_dangling != best.exists()
    assert is_dangling or made.load_checkpoint(best)["epoch"] == 1
    assert files(tmp_path) == (["last.ckpt"] if is_dangling else ["best.ckpt", "last.ckpt"])
