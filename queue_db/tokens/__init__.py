"""API tokens and the sessions of people who log in with one."""
