"""Common: adversaries, estimators and kept noise that several defences share."""
