"""Tests of draftgate."""
