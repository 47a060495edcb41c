"""How a model is trained: configuration, examples, batches, losses, objective, loop, checkpoints, `fit`."""
