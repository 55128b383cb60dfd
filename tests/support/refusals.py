"""What a refusal must be: our own error, of the right argument, in one line."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from understudy.errors import LONGEST_VALUE, InvalidArgument, shorten

__all__ = ["LONGEST_VALUE", "assert_refused", "shorten"]


def assert_refused(call: Callable[[], object], argument: str, words: str) -> InvalidArgument:
    """The call raises `InvalidArgument` for the argument, and says the words; the error."""
    with pytest.raises(InvalidArgument) as caught:
        call()
    assert argument in caught.value.argument
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    return caught.value
