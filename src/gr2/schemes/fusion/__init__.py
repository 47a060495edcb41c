"""Docids by regularised fusion (paper: docid design), and plain pseudo-queries by the same generator."""
