"""What the fallback of `draftgate serve` saves when traffic ruins a head's acceptance."""
