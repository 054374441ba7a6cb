"""The backends by name. A name is enough to rebuild a backend in another process or on another machine."""

from __future__ import annotations

import importlib
from functools import lru_cache
from typing import Final

from lunette.conform.backends.backend import LIVE, Backend
from lunette.errors import ArgumentError, meant, shown

_PLACES: Final = {
    "torch": "torch:Torch",
    "torch-compile": "torch:TorchCompile",
    "lunette-torch": "lunette_torch:LunetteTorch",
    "jax": "jax:Jax",
    "onnxruntime": "onnxruntime:OnnxRuntime",
    "onnx-reference": "onnx_reference:OnnxReference",
    "openvino": "openvino:OpenVino",
    "tinygrad": "tinygrad:Tinygrad",
    "tensorflow": "tensorflow:TensorFlow",
    "keras": "tensorflow:Keras",
    "lunette": "lunette:Lunette",
    "lunette-jax": "lunette_jax:LunetteJax",
    "lunette as bounds": "bounds:LunetteBounds",
    "auto_lirpa as bounds": "auto_lirpa:AutoLirpa",
}
NAMES: Final = tuple(name for name in _PLACES if not name.endswith(" as bounds"))
"""Of those that have operators."""


@lru_cache
def _built(name: str) -> Backend:
    if name in _PLACES:
        module, _, kind = _PLACES[name].partition(":")
        built: Backend = getattr(importlib.import_module(f"lunette.conform.backends.{module}"), kind)()
        return built
    if ":" in name and name.endswith(" as bounds"):
        from lunette.conform.backends.bounds import ImportedBounds

        return ImportedBounds(name)
    if ":" in name and " as " in name:
        from lunette.conform.backends.function import Imported

        return Imported(name)
    hint = meant(name, _PLACES, "A function of yours is named module:function.")
    raise ArgumentError("V2", f"a backend among {', '.join(_PLACES)}", shown(name), hint, who="conform")


def find(name: str) -> Backend:
    """A backend by its name: a library's, or "module:function as operator". Rule V2."""
    name = f"{name} as bounds" if name not in _PLACES and f"{name} as bounds" in _PLACES else name
    return LIVE[name] if name in LIVE else _built(name)
