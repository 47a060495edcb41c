"""From a checkpoint to a searchable model: backbone, network, vectors, node prior, folder, search."""
