"""A Hessian times a vector without the Hessian: the derivative of a gradient, `ln.jvp` of `ln.grad`.

It costs a few gradients, whatever the number of parameters. Here it is checked against the difference of two gradients,
and then finds the largest curvature of a loss by power iteration: the fastest that gradient descent may go is 2 / that.
"""

import sys

import numpy as np

import lunette as ln

random = np.random.default_rng(0)
x, y = random.standard_normal((8, 2, 9, 9)), random.standard_normal((8, 3))
p = {
    "w": random.standard_normal((4, 2, 3, 3)) / 4,
    "b": random.standard_normal(4) / 4,
    "v": random.standard_normal((3, 4)) / 2,
}


def loss(p):
    h = ln.smooth_max_pool(ln.tanh(ln.conv(x, p["w"], p["b"])), 3, beta=2.0)
    return ln.mse(ln.linear(ln.global_avg_pool(h, keepdims=False), p["v"]), y)


def hessian_times(p, t):
    return ln.jvp(ln.grad(loss), (p,), (t,))[1]


def dot(a, b):
    return float(sum((a[k] * b[k]).sum() for k in a))


product = ln.jit(hessian_times)  # transformations nest, and compile
t = {name: random.standard_normal(a.shape) for name, a in p.items()}

exact, step = product(p, t), 1e-5
ahead, behind = (ln.grad(loss)({k: p[k] + s * t[k] for k in p}) for s in (step, -step))
apart = max(float(np.abs((ahead[k] - behind[k]) / (2 * step) - exact[k]).max()) for k in p)
print(f"H t against the difference of two gradients: at most {apart:.1e} apart")
assert apart < 1e-7

s = {name: random.standard_normal(a.shape) for name, a in p.items()}
print(f"H is symmetric: <s, H t> - <t, H s> = {dot(s, exact) - dot(t, product(p, s)):.1e}")

for _ in range(int(sys.argv[1]) if len(sys.argv) > 1 else 60):
    size = np.sqrt(dot(t, t))
    t = {name: a / size for name, a in t.items()}
    image = product(p, t)
    curvature, t = dot(t, image), image
print(f"largest curvature {curvature:.6f}: gradient descent is stable below a rate of {2 / curvature:.3f}")
