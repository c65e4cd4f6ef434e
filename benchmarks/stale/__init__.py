"""What a head loses when the target moves on, and what a short re-training brings back."""
