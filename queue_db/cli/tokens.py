"""``queue-db tokens``: make, list and revoke API tokens."""

from __future__ import annotations

from typing import Annotated

import typer

from queue_db.cli import output, panels
from queue_db.cli.commands import command
from queue_db.cli.options import CommonOptions
from queue_db.cli.recording import user
from queue_db.operations import tokens as operations
from queue_db.operations.tokens import NewToken
from queue_db.tokens.tokens import SCOPES

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of the token: its user or program, for the action log.")]


def _seconds(given: str) -> float:
    try:
        return float(given)
    except ValueError:
        raise typer.BadParameter(f"{given!r}: must be a number of seconds, such as 2592000 for 30 days") from None


app = typer.Typer(
    name="tokens",
    help="API tokens of the service, queue-db serve: programs send one, people log in with one.",
    no_args_is_help=True,
    rich_help_panel=panels.SETUP,
)


@command(
    app,
    "create",
    "queue-db tokens create shop --scope enqueue --queue 'mail*'",
    "queue-db tokens create ops --scope read --scope manage --expires-in 2592000",
    "queue-db tokens create worker-7 --scope work --json | jq -r .secret",
)
def create(
    name: NameArgument,
    *,
    scope: Annotated[
        list[str],
        typer.Option(
            "--scope",
            metavar="|".join(SCOPES),
            help="What it allows; may be repeated. read: look at everything; enqueue: add jobs and publish messages; "
            "work: claim and complete; manage: everything else.",
        ),
    ],
    queue: Annotated[
        list[str] | None,
        typer.Option(
            "--queue",
            metavar="PATTERN",
            help="For the queues, feeds and topics that this glob pattern matches; may be repeated. Default: all.",
        ),
    ] = None,
    expires_in: Annotated[
        float | None,
        typer.Option("--expires-in", metavar="SECONDS", parser=_seconds, help="It ends after this time. Default: never."),
    ] = None,
    common: CommonOptions,
) -> None:
    """Make a token and print its secret. Keep it: the database has only its SHA-256, so it cannot be shown again.

    A program sends it in the header "Authorization: Bearer SECRET". A person enters it on the login page of the dashboard.
    """
    with common.open() as db:
        made = NewToken(name, tuple(scope), tuple(queue or ["*"]), expires_in)
        secret = operations.create(db, user(), made)
    common.print({"token": name, "secret": secret}, secret)
    output.note(f"token {name!r} is made; this secret is not shown again")


@command(app, "list", "queue-db tokens list", "queue-db tokens list --json | jq -r 'select(.active) | .name'")
def list_tokens(*, common: CommonOptions) -> None:
    """List the tokens, without their secrets."""
    with common.open() as db:
        found = db.tokens.list()
    common.print_all(
        found,
        ("token", "scopes", "queues", "state", "last used", "expires"),
        lambda one: (
            one.name,
            " ".join(one.scopes),
            " ".join(one.queues),
            "active" if one.active else "expired" if one.revoked_at is None else "revoked",
            one.used_at or "never",
            one.expires_at or "never",
        ),
    )


@command(app, "revoke", "queue-db tokens revoke shop")
def revoke(name: NameArgument, *, common: CommonOptions) -> None:
    """Revoke a token: services refuse it within a second. People who logged in with it are logged out."""
    with common.open() as db:
        revoked = operations.revoke(db, user(), name)
    common.print_state({"token": name}, "revoked", there=revoked, missing="not found, or revoked before")
