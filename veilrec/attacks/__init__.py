"""Attacks: what can be found out from the transcript, one file each."""
