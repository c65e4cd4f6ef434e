"""Draft heads: what trains them."""
