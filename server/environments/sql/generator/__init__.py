"""The generator of the shipped SQL tasks: seeded, so that the same code writes the same bytes."""

from rolloutgym.server.environments.sql.generator.build import generate

__all__ = ["generate"]
