"""Work in other processes: handlers with ``executor="process"``, programs (``--exec``), and several workers (``--processes``).

The worker does not import this package. It finds the pool and the names of functions by ``queue_db.slices.load``.
"""
