"""Erasing, measured: what is trained, who reads, and the cells of the table."""
