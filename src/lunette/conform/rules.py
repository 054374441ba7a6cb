"""The classes of failures: the rule that each breaks, and what was found out about it."""

from __future__ import annotations

from lunette._native import SUM_BLOCK

RULES: dict[str, str] = {
    "size rule": "out = floor((n + lo + hi - span)/stride) + 1; with ceil_mode one more if it hangs over the padded "
    "end and starts on data or left padding; a size below 1 is refused.",
    "empty window": "A window that holds no cell of the input has no maximum, no index and no derivative.",
    "divisor": "An average is divided by the cells of the window inside the padded input, or inside the input; the "
    "overhang of ceil_mode never counts. A p-norm sums the cells that are there.",
    "padding": "A cell outside the input is absent: it contributes nothing, whatever the weight.",
    "tie": "Among equal cells the first in row-major order wins; `ties` says who carries the derivative.",
    "signed zero": "-0.0 and +0.0 are equal, so the first of them wins, sign and all.",
    "nan": "A window that contains NaN is NaN; its index and derivative belong to the first NaN.",
    "infinity": "Infinities are ordinary values: the maximum of -inf is -inf, sums follow IEEE.",
    "index": "An index is the flat row-major place of the winner in its own unpadded channel plane.",
    "accumulation": "A sum of t terms is within gamma(h) * sum|x||w| + (t+2) * tiny of the exact one, "
    f"h = min(t, {SUM_BLOCK} + ceil(t/{SUM_BLOCK})) + 2.",
    "precision": "A result is computed in the dtype of its input, or in a wider one.",
    "overflow": "The average and the norm of finite cells are finite where the exact result is.",
    "underflow": "Subnormal numbers are numbers: nothing is flushed to zero.",
    "sign": "A p-norm sums |x|^p: the sign of a cell does not matter.",
    "gradient": "JVP and VJP are the derivative of the operator, and transposes of each other.",
    "value": "The result is the operator's definition.",
    "type": "The result is an array of the input's dtype, and indices are integers.",
    "input": "Inputs are never changed.",
    "refusal": "Every call that the rules define returns its result.",
    "crash": "Every call returns a result or raises an error.",
    "hang": "Nothing takes time in the size of the kernel when the input is small.",
    "excluded": "Claimed bounds hold at every point of the box: lo <= f(x) <= hi for the exact f(x).",
    "count_include_pad ignored": "Cells of padding count in an average unless count_include_pad says that they do not.",
    "divisor ignored": "An average is divided by the divisor that is given, in every window.",
    "ceil_mode ignored": "With ceil_mode there is one more window if it hangs over the end and starts inside.",
    "dilation ignored": "The cells of a window are as far apart as dilation says.",
    "padding ignored": "Padding makes room for windows that reach over the border.",
    "bounds over padding": "A cell outside the input is absent: nothing that is bounded reads it.",
    "rounded inward": "What a bound is rounded by, it is rounded outward by: a lower one down, an upper one up.",
    "no bound": "Bounds are two arrays of the output's shape, lo and hi, of numbers or infinities, never of NaN.",
}
"""Class -> the sentence of lunette's rules that is broken."""

WHY: dict[str, str] = {
    "size rule": "Another formula for the number of windows, or no check of it.",
    "empty window": "Dilation, padding or ceil_mode made a window that misses the input, and nobody looked.",
    "divisor": "Another count of padding or overhang explains the values exactly.",
    "padding": "Only windows that reach over the border are wrong.",
    "tie": "Several cells equal the winner, and another of them was chosen.",
    "signed zero": "The comparison let the later zero win, or the sign was lost.",
    "nan": "Comparisons with NaN are false, so the order of the loop decides.",
    "infinity": "A finite number stands in for -inf, or zeros were multiplied with an infinity.",
    "index": "The value is right and its place is not.",
    "accumulation": "The error is that of a running sum, or of a sum kept in a narrow type.",
    "precision": "The error is that of float32, although the arrays are float64.",
    "overflow": "An intermediate power or sum left the range of the dtype, the result did not.",
    "underflow": "Small intermediate results were flushed to zero.",
    "sign": "Powers of negative cells kept their sign.",
    "gradient": "The value is right, its derivative is not.",
    "value": "The value is wrong, and no simpler class explains it.",
    "type": "Something other than the promised array came back.",
    "input": "The function wrote to the arrays it was given.",
    "refusal": "An error, where the rules define a result.",
    "crash": "The process died.",
    "hang": "The call did not come back in time.",
    "excluded": "The exact value at a point of the box lies outside, and no simpler class explains it.",
    "count_include_pad ignored": "The bounds hold for the network whose average counts padding.",
    "divisor ignored": "The bounds hold for the network whose average has no divisor of its own.",
    "ceil_mode ignored": "The bounds are those of the network without ceil_mode.",
    "dilation ignored": "The bounds are those of the network without dilation.",
    "padding ignored": "The bounds are those of the network without padding.",
    "bounds over padding": "Without its padding, the same network is bounded rightly.",
    "rounded inward": "A value is outside by no more than an execution of the network in its dtype may be off by.",
    "no bound": "There is nothing to compare the values of the network with.",
}
assert RULES.keys() == WHY.keys()
