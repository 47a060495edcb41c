"""What several test files use: tiny models and collections, a server to ask, oracles, paths."""
