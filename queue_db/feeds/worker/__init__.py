"""Slots of a worker that execute the messages of shared cursors."""
