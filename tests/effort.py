"""How much a run is to try: everything at length by night (`make test-long`), a part of it otherwise."""

import os

from hypothesis import settings

LONG = os.getenv("HYPOTHESIS_PROFILE") == "nightly"
ALL_OR_HALF = slice(None, None, 1 if LONG else 2)
"""Of a list whose entries take seconds each: all by night, every other one by day."""
ALL_OR_QUARTER = slice(None, None, 1 if LONG else 4)


def by_day(examples: int) -> settings:
    """Of random examples that take long: so many by day, as many as of others by night."""
    return settings() if LONG else settings(max_examples=examples)


few = by_day(3)
