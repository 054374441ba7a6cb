"""Verdicts about networks: properties, attacks, proofs, certificates."""
