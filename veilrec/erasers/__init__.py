"""Erasers: what makes a finished model forget, one method a file."""
