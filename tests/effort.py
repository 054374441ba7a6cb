"""How much a run is to try: everything at length by night (`make test-long`), a part of it otherwise."""

import os

LONG = os.getenv("HYPOTHESIS_PROFILE") == "nightly"
