"""Aggregation: the same sums of a log on Polars, DuckDB, Dask and PySpark."""
