"""Fuzzes every kind of file: mutated files of each are opened, listed, read, checked and scanned.

- `seeds`: whole files, as the contract tests of kinds write them with each format's own library.
- `mutations`: files with something broken.
- `repairs`: checksums of a broken file, computed again.
- `reading`: everything that is asked of a broken file.
- `run`: batches in processes with limited memory, and the outcomes.
- `__main__`: the command line.
"""
