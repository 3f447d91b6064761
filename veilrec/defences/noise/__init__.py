"""Noise on what leaves a device: lattices, samplers, and the same bits on every machine."""
