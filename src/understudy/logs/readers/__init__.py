"""Readers: files of every format, and frames, as batches of rows in one form.

`find_files` turns paths, globs and folders into sources, `LogReader(sources, columns).batches()`
reads them in order, by time if there is a column of times. A batch is a Polars frame with the
column names of `logs.schema`; its values are as the file has them, and validation comes later.
"""

from understudy.logs.readers.bandit_feedback import from_bandit_feedback, to_bandit_feedback
from understudy.logs.readers.files import FORMATS, FileSource, find_files
from understudy.logs.readers.inputs import (
    FrameSource,
    LogReader,
    LogSource,
    count_rows,
    has_propensities,
    sources_name,
)
from understudy.logs.readers.prefetch import prefetch

__all__ = [
    "FORMATS",
    "FileSource",
    "FrameSource",
    "LogReader",
    "LogSource",
    "count_rows",
    "find_files",
    "from_bandit_feedback",
    "has_propensities",
    "prefetch",
    "sources_name",
    "to_bandit_feedback",
]
