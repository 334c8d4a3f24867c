"""Draws once per sample from (seed, epoch, row), then applies to every part."""
