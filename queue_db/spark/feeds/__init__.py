"""Spark reads feeds and publishes to them."""
