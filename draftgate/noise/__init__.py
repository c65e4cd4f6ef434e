"""How noisy a runner is: studies of unchanged builds, and what a gate can show there."""
