"""What operators look at: numbers over time, failures by kind, the log of actions."""
