"""Readers: files and frames of any format, as batches of rows."""
