"""Readers: files of every format, and frames, as batches of rows in one form.

`files.find_files` turns paths, globs and folders into sources; `inputs.LogReader` reads them in
order, by time if there is a column of times. A batch is a Polars frame with the column names of
`logs.schema`; its values are as the file has them, and validation comes later.
"""
