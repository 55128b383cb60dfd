"""A certificate as a file, beside the snapshot of its learner: JSON, bit for bit."""

from __future__ import annotations

import json
import os
from pathlib import Path

from understudy.certificates.certificate import Certificate
from understudy.errors import InvalidArgument, InvalidSnapshot
from understudy.snapshots import (
    FORMAT,
    REMEDY,
    VERSION,
    as_data,
    from_data,
    parse,
    read_text,
    write_atomically,
)


def save_certificate(certificate: Certificate, path: str | os.PathLike[str]) -> None:
    """Write a certificate, whole or not at all; `load_certificate` reads it.

    >>> import tempfile, understudy as us
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     us.save_certificate(us.Certificate(behavior=[0.5, 0.5]), f"{folder}/saved.json")
    ...     us.load_certificate(f"{folder}/saved.json").rounds
    0
    """
    if not isinstance(certificate, Certificate):
        raise InvalidArgument(
            "certificate", certificate, "it is not a us.Certificate", "pass one, or .certificate"
        )
    content = {"format": FORMAT, "version": VERSION, "certificate": as_data(certificate)}
    write_atomically(Path(path), json.dumps(content, allow_nan=False, indent=1).encode())


def load_certificate(path: str | os.PathLike[str]) -> Certificate:
    """The certificate that was saved at `path`, or `InvalidSnapshot`.

    >>> load_certificate("nowhere.json")
    Traceback (most recent call last):
    FileNotFoundError: [Errno 2] No such file or directory: 'nowhere.json'
    """
    try:
        found = from_data(parse(read_text(path)).get("certificate"), "it")
    except InvalidSnapshot:
        raise
    except InvalidArgument as error:
        raise InvalidSnapshot("path", str(path), error.reason, REMEDY) from error
    if not isinstance(found, Certificate):
        raise InvalidSnapshot("path", str(path), "it holds no certificate", REMEDY)
    return found
