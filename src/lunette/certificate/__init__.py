"""Certificates: files of exact numbers that a small program replays (docs/certificates.md)."""
