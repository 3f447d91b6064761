"""Erasers: methods that make a finished model forget, one file each."""
