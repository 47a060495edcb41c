"""Sweeps of many training runs, which can be interrupted and resumed, and their evaluation."""
