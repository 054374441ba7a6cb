"""Which lunette this is, as its files and reports say."""

from importlib.metadata import version
from typing import Final

VERSION: Final = version("lunette")
