"""Proves that no reader runs what `scan` calls clean: `python -m fuzz.scans --files 100000 --seed 0`.

- `chance`: random choices, and what payloads are called.
- `programs`: pickles, opcode by opcode.
- `frames`: frames around opcodes.
- `streams`: pickles in a row, legacy files of torch.
- `arrays`: NumPy's files.
- `squeezed`: files compressed as a whole.
- `zips`: zip archives, field by field.
- `keras_models`: configurations of Keras, and HDF5 files with them.
- `zip_files`: archives of torch, torch.package, NumPy and Keras.
- `tars`: tar archives, field by field, and those of torch 0.1.
- `files`: all of these, inside each other and broken.
- `guard`: the audit hook that says which names a reader resolves, and stops whatever it may not do.
- `readers`: the real readers.
- `child`: the program that runs them, for one version of Python.
- `children`: starts these programs and asks them.
- `__main__`: scans files, and has readers load the clean ones.
"""
