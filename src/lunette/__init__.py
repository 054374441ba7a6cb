"""The spatial operators of neural networks, defined exactly once."""
