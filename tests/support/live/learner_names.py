"""The learners that can be named in a study, and the parameters of each."""

from understudy.logs.settings import LEARNERS, PARAMETERS

__all__ = ["LEARNERS", "PARAMETERS"]
