"""Runs: one pass over a log, row by row or from sums, for every command."""
