"""Elementwise losses on gathered pairs, without gains or reduction."""
