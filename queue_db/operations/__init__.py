"""The administrative operations."""
