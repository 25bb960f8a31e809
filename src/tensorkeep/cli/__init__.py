"""The command line, `tensorkeep`. One file per command; everything that is hard stands in pure files beside them.

- `inspect`, `slice`: the commands.
- `_main`: the application they are registered in; errors to exit codes.
- `_report`: a header, counted, filtered and sorted. Pure.
- `_modules`: tensors as a tree of modules, with equal layers folded. Pure.
- `_views`, `_json`: a report as lines for people, and for programs. Pure.
- `_index`: the text of an index, read without being evaluated. Pure.
- `_preview`: the part of a large tensor that is printed, read without the rest.
- `_npy`: an array as a `.npy` file.
- `_text`, `_lines`: values as people read them; columns of styled text. Pure.
- `_render`: the only file that prints.
"""

from tensorkeep.cli._main import app, main

__all__ = ["app", "main"]
