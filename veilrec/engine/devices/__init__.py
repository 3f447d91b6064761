"""Devices' own values between rounds: in memory or in files, and of their own item tables by row."""
