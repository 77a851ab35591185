"""What a request passes before its endpoint, and a response after it: limits, names, errors, the server."""
