"""Protocols: what crosses the wire and what the server does with it, one file each."""
