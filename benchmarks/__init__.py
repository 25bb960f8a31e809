"""How fast tensorkeep is, beside its peers and beside what the machine allows.

`python -m benchmarks`, from the root of the project, measures every case and writes `docs/benchmarks.md`.

- `case`: the vocabulary: a case, its contenders, its target.
- `load`, `save`, `background`, `open`, `slice`, `checkpoint`, `store`, `pickles`, `model`, `trainers`, `remote`,
  `serve`, `distributed`, `ranks`, `startup`: the cases, one file per group.
- `web`: a web server, and a slow line to it.
- `inputs`: the files that are read, and the page cache. `llama`: a model in several files.
- `limits`: what the machine can do at best: copies, raw reads, empty tensors.
- `harness`: rounds, clocks and memory. `worker`: the process in which that happens. `results`: what came out.
- `machine`, `report`: the page.
"""
