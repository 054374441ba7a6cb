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

REASONS: Final[dict[str, str]] = {
    "Its places or sizes depend on values: compute that part outside of the model.": """
        Compress GatherElements GatherND MaxRoiPool MaxUnpool NonMaxSuppression NonZero RoiAlign Scatter
        ScatterElements ScatterND TensorScatter TopK Unique GridSample DeformConv ReverseSequence
    """,
    "It is control flow: export the model with its shapes fixed, or inline it (onnx.inliner).": "If Loop Scan",
    "Sequences and optionals are no arrays.": """
        ConcatFromSequence Optional OptionalGetElement OptionalHasElement SequenceAt SequenceConstruct SequenceEmpty
        SequenceErase SequenceInsert SequenceLength SequenceMap SplitToSequence
    """,
    "Texts and pictures in files are no arrays of floats.": """
        ImageDecoder RegexFullMatch StringConcat StringNormalizer StringSplit TfIdfVectorizer
    """,
    "Integers are shapes, axes and indices here, not data.": """
        BitCast BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor ConvInteger MatMulInteger
    """,
    "Its numbers are quantised: export the model in floats.": """
        DequantizeLinear DynamicQuantizeLinear QLinearConv QLinearMatMul QuantizeLinear
    """,
    "It draws random numbers.": """
        Bernoulli Multinomial RandomNormal RandomNormalLike RandomUniform RandomUniformLike
    """,
    "It is a loss, for training: ln.cross_entropy and ln.mse are ours.": """
        NegativeLogLikelihoodLoss SoftmaxCrossEntropyLoss
    """,
    "It has a state, or attends: unroll it, or inline it (onnx.inliner).": """
        Attention CausalConvWithState FlexAttention GRU LSTM LinearAttention RNN RotaryEmbedding
    """,
    "lunette has no operator for it yet; most of these are made of others: inline it (onnx.inliner).": """
        Acos Acosh AffineGrid Asin Asinh Atan Atanh BlackmanWindow CenterCropPad Col2Im Cos Cosh CumProd CumSum DFT Det
        Einsum EyeLike GroupNormalization HammingWindow HannWindow Hardmax IsInf IsNaN LRN LpNormalization
        MeanVarianceNormalization MelWeightMatrix RMSNormalization ReduceProd Round STFT Shrink Sin Sinh SwiGLU Tan
        ThresholdedRelu Trilu Xor
    """,
}
REFUSED: Final[dict[str, str]] = {name: why for why, names in REASONS.items() for name in names.split()}


def markdown() -> str:
    """The table of docs/onnx.md."""
    rows = [(name, f"read as {by}") for name, by in READ_AS.items()]
    rows += [(name, f"refused: {why}") for name, why in REFUSED.items()]
    return "\n".join(
        ["| operator | in lunette |", "|---|---|", *(f"| {name} | {what} |" for name, what in sorted(rows))]
    )
