"""Administrative operations: one function for each, which the command line, the REST API and the dashboard call.

A function gets the database, the actor, and what to change. It checks the scope, calls the verb, and returns what was changed. The
change and its entry in the action log commit together: see :mod:`queue_db.operations.entry`. An operation that asks for the present
state, such as a pause of a paused queue, or the definition that a schedule has, is logged as asked.
"""
