"""Tools for agents (Model Context Protocol): they look at the queues of a service, and change them only after a preview.

``python -m queue_db.contrib.mcp`` is a server on standard input and output. It asks the REST API of ``queue-db serve`` with an API
token, so that the service enforces the scopes, and an agent gets neither the credentials of the database nor the token.
"""
