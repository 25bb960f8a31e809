"""Keys and signed checkpoints for tests, and forgeries of signatures."""
