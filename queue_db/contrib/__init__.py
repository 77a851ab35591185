"""Adapters: each package here makes the queue a part of another framework, through the public interface alone."""
