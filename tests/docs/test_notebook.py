"""The notebook of the documentation runs, and shows what is in it."""

from __future__ import annotations

import json

from tests.support.notebooks import texts_of
from tests.support.run_notebook import NOTEBOOK, PICTURES, executed, pictures_of


def test_the_notebook_shows_what_its_cells_give() -> None:
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))

    assert executed(notebook) == notebook, "run python -m tests.support.run_notebook"


def test_pages_show_the_pictures_of_the_notebook() -> None:
    pictures = pictures_of(json.loads(NOTEBOOK.read_text(encoding="utf-8")))

    assert {path.name: path.read_text(encoding="utf-8") for path in PICTURES.iterdir()} == pictures
    for html in pictures.values():
        assert texts_of(html.strip())
        assert "\n\n" not in html.strip(), "Markdown would take what follows for text"
