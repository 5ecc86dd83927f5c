"""Executable tools: small deterministic state machines that answer calls."""
