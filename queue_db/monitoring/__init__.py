"""What operators look at: numbers over time, failures by kind, the action log."""
