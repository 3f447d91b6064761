"""Reproduction: the tables of a paper from ordinary runs, our numbers beside those that it reports."""
