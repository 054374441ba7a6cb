"""Bounds of whole networks by linear relaxation."""
