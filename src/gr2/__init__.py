"""Generative retrieval with multi-graded relevance."""
