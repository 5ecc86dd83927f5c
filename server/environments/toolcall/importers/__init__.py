"""Readers of other people's dialogue formats, each to the same item."""
