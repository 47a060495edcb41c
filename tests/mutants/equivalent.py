"""Mechanical changes that no test can notice, because the program does the same, and why."""

EQUIVALENT: dict[tuple[str, str, str], str] = {}
"""The file, the line and what was changed in it → the reason."""
