"""Steps that are known beforehand: captured as graphs, cut, scheduled and played without asking."""
