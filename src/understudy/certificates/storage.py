"""Files of certificates: each holds one certificate as JSON, whole."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from understudy.errors import InvalidArgument, InvalidSnapshot
from understudy.snapshots import REMEDY, from_text, read_text, to_text, write_atomically
from understudy.types import saved_tag

if TYPE_CHECKING:
    from typing import TypeAlias

    from understudy.certificates.certificate import Certificate
    from understudy.certificates.difference import DifferenceCertificate
    from understudy.certificates.joint import JointCertificate
    from understudy.certificates.segments import SegmentCertificates

    SavedCertificate: TypeAlias = (
        Certificate | DifferenceCertificate | JointCertificate | SegmentCertificates
    )


def _is_certificate(value: Any) -> bool:
    """Whether a value is a certificate of any kind, which files can hold."""
    return saved_tag(type(value)) is not None and hasattr(value, "contradicts")


def save_certificate(certificate: SavedCertificate, path: str | os.PathLike[str]) -> None:
    """Write a certificate, whole or not at all; `load_certificate` reads it.

    >>> import tempfile, understudy as us
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     us.save_certificate(us.Certificate(behavior=[0.5, 0.5]), f"{folder}/saved.json")
    ...     us.load_certificate(f"{folder}/saved.json").rounds
    0
    """
    if not _is_certificate(certificate):
        raise InvalidArgument(
            "certificate", certificate, "it is not a us.Certificate", "pass one, or .certificate"
        )
    write_atomically(Path(path), to_text(certificate=certificate).encode())


def load_certificate(path: str | os.PathLike[str]) -> Any:  # of the kind that was saved
    """The certificate that was saved at `path`, or `InvalidSnapshot`.

    >>> load_certificate("nowhere.json")
    Traceback (most recent call last):
    FileNotFoundError: [Errno 2] No such file or directory: 'nowhere.json'
    """
    (found,) = from_text(read_text(path), "certificate")
    if not _is_certificate(found):
        raise InvalidSnapshot("path", str(path), "it holds no certificate", REMEDY)
    return found
