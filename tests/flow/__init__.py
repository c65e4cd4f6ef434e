"""Whole sessions on the scripted engine, and the page in a real browser."""
