"""Kill rounds: Spark programs that use a queue are killed at every step, and every job must be there once at the end.

    python -m tests.spark.kills --rounds 20 --seed 7

A *round* is a program (a batch write, a stream into a queue, a stream out of one, a drain), a database, and one or more faults.
How it works:

- ``hook.py`` lies in the environment of the Python that Spark runs (which does not have the package; ``register()`` ships it). It
  wraps the package's transactions as soon as they are imported there, counts the arrivals at the step that the round names, and at
  the wanted one raises, ends its process, or waits;
- ``client.py`` is the driver's program, in a process of its own: it gets an order, runs it and answers;
- ``traps.py`` sets the hook and acts when a process waits there: kill a driver, an executor, the database, cut
  a connection;
- ``programs.py`` has the orders of each program and the expected outcome; ``rounds.py`` plays a round: orders, faults, the same
  order again to whoever comes after the dead, and the count at the end.
"""
