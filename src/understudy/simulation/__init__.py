"""Simulation: the game of the paper, its adversaries, and many runs of it."""
