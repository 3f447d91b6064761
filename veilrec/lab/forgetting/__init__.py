"""Forgetting: what an erasure has left to be found, looked at from all sides, as a receipt."""
