"""The command line, `tensorkeep`. One file per command; everything that is hard stands in pure files beside them.

- `inspect`, `slice`: what is in a checkpoint.
- `verify`, `diff`: whether it is whole, and what sets two apart. Their exit codes are answers.
- `reshard`, `merge`, `edit`: written anew, several as one, changed in place.
- `list`: the steps of a store.
- `fetch`: a remote checkpoint on the disk.
- `convert`, `_conversion`: a checkpoint of any kind as safetensors, and what became of it.
- `scan`, `_scan_views`: what files would run if others loaded them.
- `serve`, `_access_log`: a directory over HTTP, and who read what.
- `_main`: the application they are registered in; errors to exit codes.
- `_arguments`: arguments and options that several commands share.
- `_contents`: the headers of what a path stands for.
- `_report`: headers, counted, filtered and sorted. Pure.
- `_state`, `_state_lines`: what files say of a whole state, and its data that are no tensors. Pure.
- `_modules`: tensors as a tree of modules, with equal layers folded. Pure.
- `_views`, `_json`: a report as lines for people, and for programs. Pure.
- `_verdict`, `_comparison`: what `verify` and `diff` found, as lines for people and for programs. Pure.
- `_written`: what stands in a directory now, said by the commands that write one.
- `_index`: the text of an index, read without being evaluated. Pure.
- `_plan`, `_ranks`: what a read would cost; what each of many ranks would read.
- `_preview`: the part of a large tensor that is printed, read without the rest.
- `_npy`: an array as a `.npy` file.
- `_text`, `_lines`: values as people read them; columns of styled text. Pure.
- `_render`: the only file that prints.
"""

from tensorkeep.cli._main import app, main

__all__ = ["app", "main"]
