"""Notifies waiting workers and listeners of new jobs, cancelled jobs and dead jobs."""
