"""Bytes to models and tensors to arrays, from files that nobody vouches for.

A file is data: nothing in it is executed. What is read is never larger than the file, but for gzip, of which no more
than a hundred times the file is unpacked. Rules NX1, NX2, NX9 and NX10 (lunette.onnx).
"""

from __future__ import annotations

import gzip
import os
import zlib
from math import prod
from pathlib import Path
from typing import Any, Final

import ml_dtypes
import numpy as np

from lunette.errors import ArgumentError, shown
from lunette.number import Array

MOST_BYTES: Final = (1 << 31) - 1
"""What protobuf can hold."""
MOST_GAIN: Final = 100
"""What gzip makes of weights is 1.1 to 2 times smaller; only a file that means harm is much more."""
LEAST_GAIN: Final = 1 << 20

FLOATS: Final = ("FLOAT", "DOUBLE", "FLOAT16", "BFLOAT16")
"""The element types of data."""
STORED: Final[dict[str, np.dtype[Any]]] = {
    "FLOAT": np.dtype("<f4"),
    "DOUBLE": np.dtype("<f8"),
    "FLOAT16": np.dtype("<f2"),
    "BFLOAT16": np.dtype(ml_dtypes.bfloat16),
    "BOOL": np.dtype("?"),
    **{f"{u.upper()}INT{b}": np.dtype(f"<{'u' if u else 'i'}{b // 8}") for u in ("", "u") for b in (8, 16, 32, 64)},
}
"""How element types lie in a file."""
INTEGERS: Final = frozenset(STORED) - frozenset(FLOATS)


def the_package() -> Any:
    """Rule NX1."""
    try:
        import onnx
    except ImportError as error:
        raise ArgumentError("NX1", "the package onnx", "none", "pip install 'lunette[onnx]'.") from error
    return onnx


def type_name(element: int) -> str:
    """The name of an element type."""
    types = the_package().TensorProto.DataType
    return str(types.Name(element)) if element in types.values() else f"element type {element}"


# ---- models


def load(source: Any) -> tuple[Any, Path | None]:
    """A model, and the folder of its file, if it has one. Rule NX2."""
    onnx = the_package()
    if isinstance(source, onnx.ModelProto):
        return source, None
    if not isinstance(source, str | os.PathLike):
        got = f"{type(source).__name__}"
        raise ArgumentError("NX2", "a path or an onnx.ModelProto", got, "Write from_onnx('net.onnx').")
    path = Path(source)
    model = onnx.ModelProto()
    data = content(path)
    try:
        model.ParseFromString(data)
    except Exception as error:  # protobuf's own, which differ between its versions
        raise ArgumentError("NX2", "an ONNX file", f"{path.name}: {shown(str(error))}", "It is damaged.") from error
    if not model.HasField("graph") or not model.opset_import:
        raise ArgumentError("NX2", "an ONNX file", f"{path.name}, which has no graph", "It is another kind of file.")
    return model, path.resolve().parent


def content(path: Path) -> bytes:
    """The bytes of a file, unpacked if gzip packed them."""
    size = path.stat().st_size
    if size > MOST_BYTES:
        hint = "Larger weights are stored beside the model, as external data."
        raise ArgumentError("NX2", f"a file of at most {MOST_BYTES} bytes", f"{size} bytes", hint)
    with path.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        if not packed:
            return file.read(MOST_BYTES)
        most = min(MOST_BYTES, max(LEAST_GAIN, MOST_GAIN * size))
        try:
            with gzip.open(file) as stream:
                data = stream.read(most + 1)
        except (OSError, EOFError, zlib.error) as error:
            raise ArgumentError("NX2", "an ONNX file", f"{path.name}: {shown(str(error))}", "It is damaged.") from error
    if len(data) > most:
        got, hint = f"more than {most} from {size}", "Unpack it yourself if you trust it."
        raise ArgumentError("NX2", f"at most {most} bytes from gzip", got, hint)
    return data


# ---- tensors


def array_of(tensor: Any, folder: Path | None) -> tuple[Array, str]:
    """A tensor as an array of floats, or of Python's integers; and its element type."""
    kind = type_name(tensor.data_type)
    if kind not in STORED:
        hint = "Weights are floats of 16, 32 or 64 bits."
        raise ArgumentError("NX6", "floats, integers or booleans", f"tensor {shown(tensor.name)} of {kind}", hint)
    shape = tuple(tensor.dims)
    if any(n < 0 for n in shape) or len(shape) > 32:
        raise damaged(tensor, f"shape {shown(shape)}")
    flat = _cells(tensor, kind, folder)
    if flat.size != prod(shape):
        raise damaged(tensor, f"{flat.size} cells for shape {shown(shape)}")
    cells = flat.reshape(shape)
    return (cells if kind in FLOATS else (cells.astype(np.int8) if kind == "BOOL" else cells).astype(object)), kind


def damaged(tensor: Any, got: str) -> ArgumentError:
    """Rule NX10."""
    return ArgumentError("NX10", f"the cells of tensor {shown(tensor.name)}", got, "The file is damaged.")


def _cells(tensor: Any, kind: str, folder: Path | None) -> Array:
    """The cells as they are stored: outside, as bytes, or as numbers of a wider type."""
    stored = STORED[kind]
    if tensor.data_location == the_package().TensorProto.EXTERNAL:
        return _outside(tensor, stored, folder)
    if tensor.raw_data:
        if len(tensor.raw_data) % stored.itemsize:
            raise damaged(tensor, f"{len(tensor.raw_data)} bytes of {kind}")
        return np.frombuffer(tensor.raw_data, stored)
    if kind in ("FLOAT", "DOUBLE"):
        return np.asarray(tensor.float_data if kind == "FLOAT" else tensor.double_data, stored)
    if kind == "INT64":
        return np.asarray(tensor.int64_data, stored)
    if kind in ("UINT32", "UINT64"):
        return np.asarray(tensor.uint64_data, np.uint64).astype(stored)
    wide = np.asarray(tensor.int32_data, np.int32)
    return wide.astype(np.uint16).view(stored) if kind in ("FLOAT16", "BFLOAT16") else wide.astype(stored)


def _outside(tensor: Any, stored: np.dtype[Any], folder: Path | None) -> Array:
    """Rule NX9: a part of a file within the folder of the model."""
    told = {e.key: e.value for e in tensor.external_data}
    name = told.get("location", "")
    if folder is None:
        hint = "Pass the path of the model, or load the data first: onnx.load(path)."
        raise ArgumentError("NX9", "a model with its data, or its path", f"data in {shown(name)}", hint)
    try:
        path = (folder / name).resolve(strict=True)
        inside = path.is_relative_to(folder) and path.is_file()
    except (OSError, ValueError, RuntimeError):  # it is not there; it has a NUL; its links go round
        inside = False
    if not inside or not name:
        hint = "What lies elsewhere is not read."
        raise ArgumentError("NX9", f"data of {shown(tensor.name)} in a file of the model's folder", shown(name), hint)
    try:
        offset, length = int(told.get("offset", "0")), int(told.get("length", "-1"))
    except ValueError:
        offset = length = -1
    size = path.stat().st_size
    wanted = prod(tensor.dims) * stored.itemsize
    length = wanted if length < 0 else length
    if offset < 0 or length != wanted or offset + length > size:
        raise damaged(
            tensor, f"offset {offset} and length {length} of {size} bytes for shape {shown(tuple(tensor.dims))}"
        )
    return np.fromfile(path, stored, wanted // stored.itemsize, offset=offset)
