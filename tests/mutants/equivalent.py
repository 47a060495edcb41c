"""Mechanical changes that no test can notice, because the program does the same, and why."""

EQUIVALENT: dict[tuple[str, str], str] = {}
"""The file and what was changed → the reason."""
