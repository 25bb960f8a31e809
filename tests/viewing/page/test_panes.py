"""Every pane of the page, as one clicks through it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from playwright.sync_api import Page, expect

import tensorkeep

Look = Callable[..., Page]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three shards with a configuration beside them."""
    folder = tmp_path_factory.mktemp("view") / "model"
    random = np.random.default_rng(0)
    tensors = {
        f"model.layers.{layer}.{part}.weight": random.standard_normal((96, 64)).astype(np.float32)
        for layer in range(3)
        for part in ("attention", "mlp")
    }
    tensors["model.norm"] = np.ones(64, np.float32)
    tensors["kernel"] = random.standard_normal((3, 4, 5, 6)).astype(np.float64)
    tensors["none"] = np.zeros((0, 3), np.float16)
    tensors["odd"] = np.array([[np.nan, np.inf], [-np.inf, 2**60]], np.float32)
    state = {"model": tensors, "optimizer": {"lr": 0.001, "betas": (0.9, 0.999), "step": torch.tensor(7)}}
    tensorkeep.save_checkpoint(state, folder, max_shard_size="60kB", metadata={"made by": "a test"})
    folder.joinpath("config.json").write_text(json.dumps({"hidden_size": 64}))
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of four steps, the second of which is the best."""
    folder = tmp_path_factory.mktemp("view") / "run"
    store = tensorkeep.CheckpointStore(folder, keep_last=None, keep_best=1, monitor="loss", mode="min")
    frozen = np.ones((64, 64), np.float32)
    for step, loss in ((100, 3.0), (200, 1.0), (300, 2.0), (400, 1.5)):
        weights = {f"layers.{place}.weight": np.full((8, 8), step + place, np.float32) for place in range(3)}
        store.save(step, {"frozen": frozen, **weights}, metrics={"loss": loss})
    return folder


def section(page: Page, name: str) -> None:
    page.get_by_role("navigation", name="Sections").get_by_role("link", name=name, exact=True).click()


def test_the_overview_has_totals_map_and_tree(look: Look, checkpoint: Path) -> None:
    page = look(checkpoint)

    expect(page.get_by_role("heading", level=1)).to_have_text(re.compile("/model$"))
    expect(page.get_by_role("region", name="Totals by dtype")).to_contain_text("F32")
    expect(page.get_by_role("tree", name="Tensors").get_by_role("treeitem").first).to_be_visible()
    page.get_by_role("group", name="Map of sizes").get_by_role("button", name=re.compile("^layers")).click(
        position={"x": 20, "y": 8}  # its parts cover the middle
    )
    expect(page.get_by_role("navigation", name="Module of the map")).to_contain_text("layers.")
    page.get_by_role("button", name=re.compile("^mlp.weight")).first.click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("mlp.weight")


def test_the_sections_show_files_metadata_state(look: Look, checkpoint: Path) -> None:
    page = look(checkpoint)

    section(page, "Files")
    page.get_by_text("model-00001-of-").click()
    expect(page.get_by_role("table", name="Tensors in the file").get_by_role("row").first).to_be_visible()
    section(page, "Metadata")
    expect(page.locator("#content")).to_contain_text("made by")
    expect(page.locator("#content")).to_contain_text('"hidden_size": 64')
    section(page, "State")
    state = page.get_by_role("tree", name="State")
    state.get_by_text("optimizer").click()
    expect(state).to_contain_text("betas")
    expect(state).to_contain_text("0.001")


def test_checks_run_and_findings_are_shown_at_their_place(look: Look, checkpoint: Path, tmp_path: Path) -> None:
    file = tmp_path / "broken.safetensors"
    tensorkeep.save({"good": np.ones(3), "bad": np.arange(9.0), "nan": np.full(2, np.nan)}, file)
    content = bytearray(file.read_bytes())
    place = content.index(np.arange(9.0).tobytes())
    content[place + 8 * 4] ^= 1
    file.write_bytes(content)
    page = look(file, at="#view=check")

    page.get_by_role("button", name="Verify").click()
    expect(page.get_by_role("region", name="Bytes")).to_contain_text("Damaged")
    page.get_by_role("button", name="Scan").click()
    expect(page.get_by_role("region", name="Code")).to_contain_text("Clean")
    page.get_by_role("button", name="Survey").click()
    expect(page.get_by_role("region", name="Numbers")).to_contain_text("1 tensor with NaN")
    expect(page.locator(".tree .faulty")).to_have_text(re.compile("^bad"))
    page.get_by_role("region", name="Bytes").get_by_role("link", name="bad").click()
    expect(page.locator(".message.bad")).to_be_visible()


def test_a_tensor_shows_its_numbers(look: Look, checkpoint: Path) -> None:
    page = look(checkpoint, at="#view=tensor&tensor=model.model.layers.1.mlp.weight")

    expect(page.get_by_role("region", name="Statistics")).to_contain_text("norm")
    histogram = page.get_by_role("region", name="Histogram")
    histogram.get_by_role("button", name="Magnitudes").click()
    histogram.get_by_role("button", name="Log").click()
    expect(histogram.get_by_role("img")).to_have_attribute("aria-label", re.compile("By magnitude: .* bins"))
    page.get_by_role("button", name="Compute 64 singular values").click()
    expect(page.get_by_role("region", name="Singular values")).to_contain_text("Stable rank")
    heatmap = page.get_by_role("region", name="Heatmap")
    expect(heatmap.locator("p.readout")).to_have_text("Rows 0 to 95, columns 0 to 63, every value")
    for _ in range(3):
        heatmap.get_by_role("button", name="Zoom in").click()
    expect(heatmap.locator("p.readout")).to_contain_text("of 96")
    heatmap.locator("canvas").click(position={"x": 100, "y": 50})
    expect(page.locator("td.picked")).to_be_visible()
    page.get_by_role("region", name="Line").get_by_role("button", name="Column").click()
    expect(page.get_by_role("region", name="Line")).to_contain_text(re.compile(r"column \d+"))
    expect(page.get_by_role("region", name="Values").get_by_role("columnheader").first).to_be_visible()


def test_a_zoomed_heatmap_paints_what_is_there(look: Look, tmp_path: Path) -> None:
    tensorkeep.save({"w": np.repeat([[-1.0, 1.0]], 2, axis=0).astype(np.float32)}, tmp_path / "w.safetensors")
    page = look(tmp_path / "w.safetensors", at="#view=tensor&tensor=w", color_scheme="light")
    expect(page.locator(".heatmap p.readout")).to_contain_text("every value")

    left, right = page.evaluate("""() => {
        const canvas = document.querySelector(".heatmap canvas");
        const { data, width } = canvas.getContext("2d").getImageData(0, 5, canvas.width, 1);
        const pixel = (share) => [...data.slice(4 * Math.floor(share * width))].slice(0, 4);
        return [pixel(0.1), pixel(0.9)];
    }""")

    assert left[2] > left[0]  # blue below zero
    assert right[0] > right[2]  # red above


def test_tensors_of_any_shape_are_shown(look: Look, checkpoint: Path) -> None:
    page = look(checkpoint, at="#view=tensor&tensor=model.none")
    expect(page.locator("#content")).to_contain_text("It has no elements")

    for name in ("model.odd", "model.model.norm", "optimizer.step", "model.kernel"):
        page.evaluate("name => { location.hash = `view=tensor&tensor=${name}`; }", name)
        expect(page.get_by_role("heading", level=1)).to_contain_text(name.removeprefix("model."))
        expect(page.get_by_role("region", name="Statistics")).to_contain_text("norm")
        expect(page.locator(".values tbody tr").first).to_be_visible()
        assert page.get_by_role("alert").count() == 0
    page.get_by_role("group", name="Slice").get_by_label("Rows").select_option("0")
    page.get_by_label("Position in dimension 1").fill("3")
    page.get_by_label("Position in dimension 1").dispatch_event("change")
    expect(page.locator(".heatmap p.readout")).to_contain_text("Rows 0 to 2, columns 0 to 5")
    assert "at=0%2C3%2C0%2C0" in page.url


def test_two_checkpoints_are_compared(look: Look, tmp_path: Path) -> None:
    one = {f"layers.{place}.w": np.full((4, 4), 1.0, np.float32) for place in range(3)}
    other = {name: values + (place + 1) * 0.1 for place, (name, values) in enumerate(one.items())}
    tensorkeep.save({**one, "gone": np.ones(2), "same": np.ones(2), "grown": np.ones(2)}, tmp_path / "a.safetensors")
    tensorkeep.save({**other, "new": np.ones(2), "same": np.ones(2), "grown": np.ones(3)}, tmp_path / "b.safetensors")
    page = look(tmp_path / "a.safetensors", tmp_path / "b.safetensors")

    expect(page.locator(".verdict")).to_contain_text("4 tensors changed, 1 tensor only in A, 1 tensor only in B")
    rows = page.get_by_role("table", name="Differences").get_by_role("row")
    expect(rows.first).to_contain_text("grown")
    expect(rows.nth(1)).to_contain_text("layers.2.w")
    expect(rows.nth(1)).to_contain_text("0.3")
    expect(page.get_by_role("region", name="Change by layer").locator("circle.dot")).to_have_count(3)
    page.get_by_role("button", name="Only in B 1").click()
    expect(rows.first).to_contain_text("new")
    page.get_by_role("button", name="Changed 4").click()
    page.get_by_role("button", name="layers.1.w").click()
    expect(page.get_by_role("region", name="Statistics")).to_contain_text("relative change")
    expect(page.get_by_role("region", name="Heatmap").locator("p.readout")).to_contain_text("every value")
    page.get_by_role("link", name="Exchange").click()
    expect(page.locator(".verdict")).to_contain_text("changed")


def test_a_store_shows_its_steps(look: Look, run: Path) -> None:
    page = look(run, width=360)

    assert page.evaluate("() => document.querySelector('#content').scrollWidth <= innerWidth")
    page.set_viewport_size({"width": 1280, "height": 800})
    steps = page.get_by_role("region", name="All steps").last
    expect(steps.get_by_role("row").nth(1)).to_contain_text("latest")
    expect(steps.get_by_role("row", name=re.compile("^Choose step 200|^200"))).to_contain_text("best")
    expect(page.get_by_role("region", name="loss").get_by_role("img")).to_have_attribute(
        "aria-label", "loss of 4 steps"
    )
    page.get_by_role("button", name="Verify step 200").click()
    expect(page.locator(".verdict")).to_contain_text("Step 200: whole")
    page.get_by_label("Choose step 100").check()
    page.get_by_label("Choose step 400").check()
    page.get_by_role("button", name="Compare two steps").click()
    expect(page.locator(".verdict")).to_contain_text("3 tensors changed")
    section(page, "Steps")
    page.get_by_role("link", name="300", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("300")
    page.get_by_label("Checkpoint").select_option("step 100")
    expect(page.get_by_role("heading", level=1)).to_contain_text("100")


def test_a_pickle_shows_what_was_not_built(look: Look, tmp_path: Path) -> None:
    torch.save({"w": torch.ones(2, 3), "hook": Hook()}, tmp_path / "old.pt")
    page = look(tmp_path / "old.pt")

    page.get_by_role("link", name="1 object").click()
    expect(page.get_by_role("region", name="Not built", exact=True)).to_contain_text("Hook")
    section(page, "Check")
    page.get_by_role("button", name="Scan").click()
    expect(page.get_by_role("region", name="Code")).to_contain_text("Unknown")


class Hook:
    """A class that nobody knows."""
