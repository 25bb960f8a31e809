"""The tests of tensorkeep; what several of them use is in `tests.support`."""
