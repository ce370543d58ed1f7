"""Programs on clusters: where they run, a training loop in segments with checkpoints, processes started for the devices."""
