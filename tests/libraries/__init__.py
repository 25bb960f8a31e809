"""What each array library does. `test_libraries` runs each `of_*` in a process of its own: together, some crash."""
