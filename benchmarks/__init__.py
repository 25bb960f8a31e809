"""How fast tensorkeep is, compared with its peers and the machine's limits.

`python -m benchmarks`, run from the project root, measures every case and writes `docs/benchmarks.md`.

- `case`: a case, its contenders, its target.
- `load`, `save`, `background`, `open`, `slice`, `checkpoint`, `store`, `pickles`, `model`, `trainers`, `remote`,
  `serve`, `distributed`, `ranks`, `startup`: the cases, one file per group.
- `web`: a web server, and a slow connection to it.
- `inputs`: the files that are read, and the page cache. `llama`: a model in several files.
- `limits`: the machine's limits: copies, raw reads, empty tensors.
- `harness`: rounds, clocks and memory. `worker`: the process that measures. `results`: the results.
- `machine`, `report`: the page.
"""
