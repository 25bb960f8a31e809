"""What type checkers say of the public names: `make types` reads these files with mypy and pyright, and runs none."""
