"""Metrics: how good the lists are, how much crosses the wire, how much can be inferred."""
