"""Tests: correctness."""
