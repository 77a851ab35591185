"""Fair queues: claims take turns among the groups that have due jobs, and obey limits of groups."""
