"""(B, 3, S, S) -> Output."""
