"""Draft heads for real: made by the whole pipeline on two cores, and watched in service."""
