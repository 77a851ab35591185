"""Errors of the servers for tests."""


class ServerMissing(Exception):
    """There is no server of this kind on this machine; the text names the commands that install one."""


class ServerFailed(Exception):
    """A server was found but did not start, or did not answer; the text ends with the tail of its log."""


class NotPrivate(Exception):
    """Only a server that the suite itself started can be stopped, killed, or given options."""
