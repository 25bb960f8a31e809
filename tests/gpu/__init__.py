"""What needs a GPU: run by `make gpu`, and by nothing else."""
