"""What can go wrong with a server for tests."""


class ServerMissing(Exception):
    """There is no server of this kind on this machine; the text names the commands that bring one."""


class ServerFailed(Exception):
    """A server was found but did not start, or did not answer; the text holds the end of its log."""


class NotPrivate(Exception):
    """Only a server that the suite itself started can be stopped, killed, or given options."""
