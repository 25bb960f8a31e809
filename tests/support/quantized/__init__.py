"""Quantized checkpoints, written by the libraries that quantize."""
