"""Tests: unit, drafts."""
