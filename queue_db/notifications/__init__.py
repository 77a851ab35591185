"""What waiting workers and listeners are notified of: new jobs, cancelled jobs, dead jobs."""
