"""The gate on simulated and recorded starts, next to other tools: RESULTS.md, by `simulate`."""
