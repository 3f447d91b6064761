"""Defences: what stands between a device and the server, one paper a file."""
