"""Who asks, and how people log in."""
