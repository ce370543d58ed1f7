"""Computations by hand (`sdy.manual_computation`, `shard_map`): what they state, on one device, and taken into what is around."""
