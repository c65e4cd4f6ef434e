"""History of nightly numbers: appended, never rewritten; change points open items."""
