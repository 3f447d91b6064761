"""Runs: what happens between the first round and a finished run directory, and after a stop."""
