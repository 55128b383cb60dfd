"""Evaluation: what a log says about policies, as enums and numbers."""
