"""Takes the pictures of docs/how-to/view.md: `python -m tests.support.view_pictures`.

They show the run of a small transformer, which learns to read digits, in a real browser.
"""

from __future__ import annotations

import contextlib
import io
import tempfile
from pathlib import Path
from typing import NamedTuple

import torch
from PIL import Image
from playwright.sync_api import Browser
from torch import nn

from examples.digits import N_VALID, load_images
from tensorkeep.store import CheckpointStore
from tensorkeep.torch import capture
from tensorkeep.viewing import Viewer
from tests.support import ROOT
from tests.support.browser import running_chromium

FOLDER = ROOT / "docs" / "how-to" / "view"

__all__ = ["FOLDER", "PICTURES", "Picture", "taken"]


class Picture(NamedTuple):
    """A place of the page.

    Attributes:
        at: Its address.
        scheme: "light" or "dark".
        size: Of the window, in pixels.
    """

    at: str
    scheme: str
    size: tuple[int, int] = (1280, 760)


PICTURES = {
    "steps": Picture("#view=steps", "light"),
    "tensor": Picture("#view=tensor&of=a:8&tensor=model.layers.4.linear1.weight", "light", (1280, 1000)),
    "overview": Picture("#view=overview&of=a:8", "dark"),
    "compare": Picture("#view=compare&a=a:1&b=a:8", "dark"),
    "small": Picture("#view=tensors&of=a:8", "light", (360, 640)),
}


class Reader(nn.Module):
    """Reads a digit row by row."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Linear(8, 64)
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(64, 4, 192, batch_first=True) for _ in range(6))
        self.head = nn.Linear(8 * 64, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        rows = self.embedding(images)
        for layer in self.layers:
            rows = layer(rows)
        return self.head(rows.flatten(1))


def train(folder: Path) -> None:
    """Train, and keep every epoch."""
    torch.manual_seed(0)
    torch.set_num_threads(1)  # more are slower for so small a network
    model = Reader()
    for part in (model.embedding, *model.layers[:2]):
        part.requires_grad_(False)  # so steps share them
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    images, labels = load_images()
    store = CheckpointStore(
        folder, keep_last=None, keep_best=1, monitor="valid_loss", mode="min", max_shard_size="200kB"
    )
    for epoch in range(1, 9):
        model.train()
        for batch in torch.arange(N_VALID, len(images)).split(64):
            loss = nn.functional.cross_entropy(model(images[batch]), labels[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.inference_mode():
            scores = model(images[:N_VALID])
        valid_loss = nn.functional.cross_entropy(scores, labels[:N_VALID]).item()
        accuracy = (scores.argmax(1) == labels[:N_VALID]).float().mean().item()
        state = capture(model=model, optimizer=optimizer, epoch=epoch)
        store.save(epoch, state, {"valid_loss": valid_loss, "accuracy": accuracy})


def taken(browser: Browser, url: str, picture: Picture) -> bytes:
    """Return a picture as PNG of few colors."""
    width, height = picture.size
    page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=picture.scheme)
    page.goto(url + picture.at)
    page.locator("#content .pane").wait_for(state="attached")
    page.wait_for_load_state("networkidle")
    page.wait_for_timeout(500)  # the last answers are drawn
    image = Image.open(io.BytesIO(page.screenshot()))
    page.close()
    buffer = io.BytesIO()
    image.convert("RGB").quantize(256, dither=Image.Dither.NONE).save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


def main() -> None:
    """Train, look, and write."""
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as directory, contextlib.chdir(directory):
        train(Path("run"))
        with Viewer("run") as viewer, running_chromium() as browser:
            for name, picture in PICTURES.items():
                FOLDER.joinpath(f"{name}.png").write_bytes(taken(browser, viewer.url, picture))


if __name__ == "__main__":
    main()
