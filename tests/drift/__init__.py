"""Tests: drift."""
