"""Pictures of tensors and checkpoints for notebooks, as HTML and SVG without scripts.

- `_histogram`: a histogram as bars. Pure.
- `_png`: an image of few colors as PNG. Pure.
- `_heatmap`: a sample as colors. Pure.
- `_squares`: a rectangle divided by sizes. Pure.
- `_treemap`: the sizes of modules as a map. Pure.
- `_show`: `show`, and `Picture`, which it returns.
"""

from tensorkeep.pictures._show import Picture, show

__all__ = ["Picture", "show"]
