"""Receipts: an erasure as one self-contained page, made for a privacy officer."""
