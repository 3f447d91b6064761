"""Datasets: functions that return `Interactions`, one source a file."""
