"""Options of Spark's Javas in tests: they live for seconds, and most of that is starting."""

import os

#: The quick compiler and no check of Spark's own classes: half of the processor time. No file is left behind by one that is killed.
LEAN = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"


def everywhere() -> None:
    """Let each Spark that this process starts, or a program that it starts, use them."""
    os.environ |= {"SPARK_SUBMIT_OPTS": LEAN, "SPARK_LAUNCHER_OPTS": LEAN}
