"""Complete workflows: index a collection, pre-train a backbone, run the demo."""
