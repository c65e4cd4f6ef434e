"""Tests: perf."""
