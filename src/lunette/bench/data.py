"""Published networks and boxes, which are not part of the project: LUNETTE_VERIFY_DATA names their folder."""

from __future__ import annotations

import os
from pathlib import Path

WANTED = "LUNETTE_VERIFY_DATA names no folder of published networks"


def data_folder() -> Path | None:
    """Where published networks are, if they are."""
    told = os.environ.get("LUNETTE_VERIFY_DATA")
    return Path(told) if told and Path(told).is_dir() else None
