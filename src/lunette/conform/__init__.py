"""Measure anyone's operators against the true answer."""
