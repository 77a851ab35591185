"""Feeds: messages with numbers that have no gaps and that become visible in their order.

Whoever gives numbers locks the feed's row first and holds the lock until its commit. So all messages with lower numbers are visible
before a higher number is given: what a reader has read up to a number, nothing will appear at or below it again.
"""
