"""Measurements of the live monitor of draft acceptance."""
