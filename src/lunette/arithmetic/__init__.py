"""Arithmetics other than "fast": correctly rounded results and sound bounds."""
