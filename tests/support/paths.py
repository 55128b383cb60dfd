"""Where the project's files are."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PACKAGE = ROOT / "src" / "understudy"

# Bytecode and compiled kernels get these names until they are whole: such a file may be gone when
# the copy of a folder comes to it, as other workers compile at the same time.
UNFINISHED = ("*.pyc.*", "*.tmp.*")
