"""Base: what everything stands on: keys, names of weights, rows, steps, the plan, and whole files."""
