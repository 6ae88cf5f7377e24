"""Fixtures of an agent without a host."""

from tests.unit.agent import engine, kernel, store

__all__ = ("engine", "kernel", "store")
