"""How long a test waits for what must happen."""

#: Seconds after which a test that waits for something that never comes gives up. It only bounds a hang: no test that passes comes
#: near it, also on a busy machine.
PATIENCE = 120.0
