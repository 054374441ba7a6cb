"""Every operator that is read, by which of ours; and of those that are not, why."""

from __future__ import annotations

from typing import Final

from lunette.onnx import cells, layout, resize, steer, sums, windows
from lunette.onnx.value import Reader

EVERY: Final[dict[str, tuple[Reader, str]]] = {
    **windows.READERS,
    **cells.READERS,
    **sums.READERS,
    **layout.READERS,
    **resize.READERS,
    **steer.READERS,
}
READERS: Final[dict[str, Reader]] = {name: reader for name, (reader, _) in EVERY.items()}
READ_AS: Final[dict[str, str]] = {name: by for name, (_, by) in EVERY.items()}
REFUSED: Final[dict[str, str]] = {}
