"""The client of a live service."""
