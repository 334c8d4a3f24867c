"""Where precision is decided."""
