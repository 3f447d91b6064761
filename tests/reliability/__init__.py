"""The goals of reliability, each as a number that anybody can measure again: ``python -m tests.reliability``.

Killed at any moment, asked twice at the same time, given whatever is bad, cut off from the network: what
comes out is the same bytes, or one line and an exit code. Every goal is a row of JSON with its value, its
limit and its seed; every case is a file in a folder, so that a measurement that was stopped goes on.
"""
