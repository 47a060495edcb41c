"""The systems that GR² is compared with, each a recipe over parts the toolkit already has."""
