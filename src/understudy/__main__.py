"""`python -m understudy` is the command `understudy`."""

from __future__ import annotations

from understudy.cli import main

main()
