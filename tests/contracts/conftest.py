"""Fixtures of the folders whose interfaces the contract suites are about."""

from tests.register.conftest import evaluated, job, uploaded, vertex_place

__all__ = ["evaluated", "job", "uploaded", "vertex_place"]
