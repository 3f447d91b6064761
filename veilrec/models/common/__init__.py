"""Common: layers and losses that several models share."""
