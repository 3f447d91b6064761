"""Base: keys, names of weights, rows, steps, the plan, and whole files, which all other rooms use."""
