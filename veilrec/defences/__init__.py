"""Defences: methods that act while a model is trained, on a device or on its uploads, one paper a file."""
