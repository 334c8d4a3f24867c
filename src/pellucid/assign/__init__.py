"""Which anchors teach which object."""
