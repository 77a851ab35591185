"""The strategy laboratory: every locking strategy on your own database, measured side by side. ``queue-db compare`` is its door.

``contestant`` says what a row is, ``article`` and ``product`` are the rows, ``crew`` runs them, ``measures`` and ``theory`` say
what the figures mean, ``results`` keeps them.
"""
