"""How many tokens the evidence against a law needs, beside its limit and its peers."""
