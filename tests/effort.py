"""How much a run is to try: everything at length by night (`make test-long`), a part of it otherwise."""

import os

from hypothesis import settings

LONG = os.getenv("HYPOTHESIS_PROFILE") == "nightly"
ALL_OR_HALF = slice(None, None, 1 if LONG else 2)
"""Of a list whose entries take seconds each: all by night, every other one by day."""
few = settings() if LONG else settings(max_examples=3)
"""Of random examples by day, where each takes long and there are hundreds of cases of them."""
