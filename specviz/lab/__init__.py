"""What is computed from runs: the race."""
