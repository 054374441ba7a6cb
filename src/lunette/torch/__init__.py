"""Lunette's operators in PyTorch, on CPU tensors: `import lunette.torch as lt`, then `lt.max_pool(x, 3, stride=2)`.

They are operators of torch: backward, double backward, forward mode, torch.func, torch.compile, torch.export and
autocast work as for torch's own.
"""

from __future__ import annotations

from lunette import ops as _ops
from lunette.torch.functions import on_tensors as _on_tensors
from lunette.torch.modules import AdaptiveAvgPool as AdaptiveAvgPool
from lunette.torch.modules import AdaptiveMaxPool as AdaptiveMaxPool
from lunette.torch.modules import AvgPool as AvgPool
from lunette.torch.modules import Conv as Conv
from lunette.torch.modules import ConvTranspose as ConvTranspose
from lunette.torch.modules import GlobalAvgPool as GlobalAvgPool
from lunette.torch.modules import GlobalMaxPool as GlobalMaxPool
from lunette.torch.modules import LpPool as LpPool
from lunette.torch.modules import MaxPool as MaxPool
from lunette.torch.modules import SmoothMaxPool as SmoothMaxPool
from lunette.torch.program import Compiled as Compiled
from lunette.torch.program import compile as compile
from lunette.torch.read import from_torch as from_torch
from lunette.torch.replace import Replaced as Replaced
from lunette.torch.replace import replace as replace

adaptive_avg_pool = _on_tensors(_ops.AdaptiveAvgPool)
adaptive_max_pool = _on_tensors(_ops.AdaptiveMaxPool)
avg_pool = _on_tensors(_ops.AvgPool)
conv = _on_tensors(_ops.Conv)
conv_transpose = _on_tensors(_ops.ConvTranspose)
global_avg_pool = _on_tensors(_ops.GlobalAvgPool)
global_max_pool = _on_tensors(_ops.GlobalMaxPool)
lp_pool = _on_tensors(_ops.LpPool)
max_pool = _on_tensors(_ops.MaxPool)
smooth_max_pool = _on_tensors(_ops.SmoothMaxPool)
