"""Feeds for asyncio."""
