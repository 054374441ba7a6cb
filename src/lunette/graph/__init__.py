"""Graphs: built or traced, differentiated, compiled, written and drawn."""
