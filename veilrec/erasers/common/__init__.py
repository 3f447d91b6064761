"""Common parts of erasers: moments of classes, maps between them, and vectors as arrays."""
