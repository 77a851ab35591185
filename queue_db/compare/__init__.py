"""The strategy laboratory: measures every locking strategy on your own database. ``queue-db compare`` runs it.

``contestant`` defines what a row must provide; ``article`` and ``product`` are the rows; ``worker_pool`` runs them in processes;
``history`` records a run; ``measures`` and ``theory`` define the figures; ``results`` stores them; ``report`` presents them.
"""
