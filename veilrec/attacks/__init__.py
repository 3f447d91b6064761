"""Attacks: readers of the transcript, one file each."""
