"""Draft heads made for real: the whole pipeline on two cores."""
