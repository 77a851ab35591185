"""What lasts longer than a request: waits, event streams, samples, outages and incidents."""
