"""Metrics: how good lists and guesses are, with floors and intervals, and how two runs compare."""
