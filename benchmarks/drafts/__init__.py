"""What draft heads do in service, held against what their training says."""
