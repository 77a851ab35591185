"""Write docs/monitoring/grafana-board.json: a dashboard for Grafana over the metrics of the service.

    python tools/grafana_board.py

The JSON has the schema version that Grafana 12 and 13 write. Its panels ask a Prometheus that scrapes ``/metrics`` of the service.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PLACE = Path(__file__).parents[1] / "docs" / "monitoring" / "grafana-board.json"

#: Of the dashboards that Grafana 12 and 13 write.
SCHEMA = 42

_COLUMNS = 24
# What a panel shows for the values of ``queue_db_up``.
_STATES = {"0": {"text": "down", "index": 0}, "1": {"text": "up", "index": 1}}
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}


def by_queue(metric: str, **labels: str) -> str:
    """The gauge of each queue: every process that is scraped has the same one, so the largest."""
    chosen = ", ".join(['queue=~"$queue"', *(f'{name}="{value}"' for name, value in labels.items())])
    return f"max by (queue) ({metric}{{{chosen}}})"


def last_minute(event: str) -> str:
    """What happened in a queue in the last minute."""
    return by_queue("queue_db_last_minute", event=event)


def rate(*counters: str) -> str:
    """A second, over all processes that are scraped."""
    return " + ".join(f"sum(rate({counter}[$__rate_interval]))" for counter in counters)


@dataclass(frozen=True)
class Panel:
    """One panel.

    :param queries: the expression of each line, and its legend.
    :param bad: from this value on it is red, or above a red line; None: never.
    :param below: it is red below that value: of a metric that is 1 or 0, as ``queue_db_up``.
    """

    title: str
    about: str
    queries: dict[str, str]
    unit: str = "short"
    width: int = 8
    kind: str = "timeseries"
    bad: float | None = None
    below: bool = False


ROWS: dict[str, list[Panel]] = {
    "Now": [
        Panel("Database", "Whether it answers the service.", {"min(queue_db_up)": "up"}, "none", 4, "stat", 1, below=True),
        Panel(
            "Oldest due job",
            "Red after five minutes.",
            {f"max({by_queue('queue_db_oldest_seconds')})": "oldest"},
            "s",
            5,
            "stat",
            300,
        ),
        Panel(
            "Due",
            "Jobs that may be claimed.",
            {f"sum({by_queue('queue_db_depth', state='available')})": "due"},
            "short",
            5,
            "stat",
        ),
        Panel(
            "Dead",
            "Jobs that wait for a person.",
            {f"sum({by_queue('queue_db_depth', state='dead')})": "dead"},
            "short",
            5,
            "stat",
            1,
        ),
        Panel(
            "Workers",
            "A worker of several queues counts in each.",
            {f"sum({by_queue('queue_db_workers')})": "workers"},
            "short",
            5,
            "stat",
        ),
    ],
    "Queues": [
        Panel(
            "Oldest due job",
            "How long the oldest due job has waited.",
            {by_queue("queue_db_oldest_seconds"): "{{queue}}"},
            "s",
            bad=300,
        ),
        Panel("Due", "Each count stops at 10,000.", {by_queue("queue_db_depth", state="available"): "{{queue}}"}),
        Panel(
            "By state",
            "All queues together.",
            {
                'sum by (state) (max by (queue, state) (queue_db_depth{queue=~"$queue"}))': "{{state}}",
            },
        ),
        Panel("Completed in a minute", "In all processes.", {last_minute("completed"): "{{queue}}"}),
        Panel("Attempts failed in a minute", "There will be another one.", {last_minute("failed"): "{{queue}}"}),
        Panel("Jobs died in a minute", "They are in the dead table.", {last_minute("died"): "{{queue}}"}, bad=1),
        Panel("Leases lost in a minute", "Jobs that another worker got meanwhile.", {last_minute("lost"): "{{queue}}"}, bad=1),
        Panel("Candidates missed in a minute", "Races lost at claims.", {last_minute("missed"): "{{queue}}"}),
        Panel("Dead", "Until they are redriven or purged.", {by_queue("queue_db_depth", state="dead"): "{{queue}}"}, bad=1),
    ],
    "Workers": [
        Panel("Workers", "Those that claim from a queue.", {by_queue("queue_db_workers"): "{{queue}}"}),
        Panel(
            "Silent workers and stuck slots",
            "No heartbeat for 30 s; handlers that do not return.",
            {"max(queue_db_silent_workers)": "silent workers", "max(queue_db_stuck_slots)": "stuck slots"},
            bad=1,
        ),
        Panel(
            "Paused, and kinds without handler",
            "1: the queue is paused. Jobs for whose kind no worker has a handler.",
            {by_queue("queue_db_paused"): "{{queue}} paused", by_queue("queue_db_unknown_kinds"): "{{queue}} without handler"},
        ),
    ],
    "Schedules and feeds": [
        Panel("Late schedules", "More than a minute.", {"max(queue_db_late_schedules)": "schedules"}, bad=1),
        Panel("Latest schedule", "How late it is.", {"max(queue_db_schedule_late_seconds)": "late"}, "s", bad=60),
        Panel(
            "Cursors behind",
            "Messages after the position.",
            {"max by (feed, cursor) (queue_db_cursor_behind)": "{{feed}} {{cursor}}"},
        ),
    ],
    "Database and service": [
        Panel(
            "Claims",
            "Of the processes that are scraped.",
            {
                rate("queue_db_claims_total"): "claims",
                rate("queue_db_claimed_total"): "jobs won",
                rate("queue_db_missed_total"): "candidates missed",
                rate("queue_db_empty_total"): "claims of nothing",
            },
            "cps",
        ),
        Panel(
            "Errors of the database",
            "Collisions are tried again.",
            {
                rate("queue_db_other_errors_total"): "other errors",
                rate("queue_db_deadlocks_total"): "deadlocks",
                rate("queue_db_serialization_failures_total"): "serialization failures",
                rate("queue_db_lock_timeouts_total"): "lock timeouts",
                rate("queue_db_retried_total"): "transactions run again",
            },
            "cps",
        ),
        Panel(
            "Incidents of the service",
            "What it refused, cut off or lost.",
            # An increase is extrapolated to the interval, so that one incident may be 1.16.
            {"round(sum by (incident) (increase(queue_db_service_incidents_total[$__rate_interval]))) > 0": "{{incident}}"},
        ),
        Panel(
            "Age of the counts", "Old counts make the other panels stale.", {"min(queue_db_depth_age_seconds)": "age"}, "s", bad=300
        ),
    ],
}


def _panel(number: int, panel: Panel, x: int, y: int, height: int) -> dict[str, Any]:
    colours: list[dict[str, Any]] = [{"color": "red" if panel.below else "green", "value": None}]
    if panel.bad is not None:
        colours.append({"color": "green" if panel.below else "red", "value": panel.bad})
    # Lines have the colours of their queues: a red line says from where on they are bad.
    style = "off" if panel.bad is None else "dashed"
    custom = {"drawStyle": "line", "fillOpacity": 10, "showPoints": "never", "thresholdsStyle": {"mode": style}}
    # The axis of a few jobs would be one of quarters of a job.
    whole = {"decimals": 0} if panel.unit in {"short", "none"} else {}
    timeseries = {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }
    stat = {"colorMode": "value", "graphMode": "area", "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False}}
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.about,
        "datasource": _SOURCE,
        "gridPos": {"x": x, "y": y, "w": panel.width, "h": height},
        "fieldConfig": {
            "defaults": {
                "unit": panel.unit,
                "min": 0,
                **whole,
                **({"mappings": [{"type": "value", "options": _STATES}]} if panel.below else {}),
                "thresholds": {"mode": "absolute", "steps": colours},
                "color": {"mode": "thresholds" if panel.kind == "stat" else "palette-classic"},
                **({"custom": custom} if panel.kind == "timeseries" else {}),
            },
            "overrides": [],
        },
        "options": stat if panel.kind == "stat" else timeseries,
        "targets": [
            {
                "refId": chr(ord("A") + at),
                "datasource": _SOURCE,
                "expr": query,
                "legendFormat": legend,
                "editorMode": "code",
                "range": True,
            }
            for at, (query, legend) in enumerate(panel.queries.items())
        ],
    }


def _panels() -> list[dict[str, Any]]:
    panels: list[dict[str, Any]] = []
    y = 0
    for heading, row in ROWS.items():
        place = {"x": 0, "y": y, "w": _COLUMNS, "h": 1}
        panels.append({"id": len(panels) + 1, "type": "row", "title": heading, "collapsed": False, "gridPos": place, "panels": []})
        x, y = 0, y + 1
        height = 4 if row[0].kind == "stat" else 7
        for panel in row:
            if x + panel.width > _COLUMNS:
                x, y = 0, y + height
            panels.append(_panel(len(panels) + 1, panel, x, y, height))
            x += panel.width
        y += height
    return panels


def board() -> dict[str, Any]:
    """The dashboard."""
    queue = "label_values(queue_db_depth, queue)"
    return {
        "title": "queue_db",
        "uid": "queue-db",
        "description": "Queues, workers, schedules and feeds of one database of queue_db, from /metrics of its service.",
        "tags": ["queue_db"],
        "schemaVersion": SCHEMA,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "timezone": "browser",
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "annotations": {"list": []},
        "links": [],
        "templating": {
            "list": [
                {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus", "refresh": 1},
                {
                    "name": "queue",
                    "label": "Queue",
                    "type": "query",
                    "datasource": _SOURCE,
                    "query": {"qryType": 1, "query": queue, "refId": "PrometheusVariableQueryEditor-VariableQuery"},
                    "refresh": 2,
                    "sort": 1,
                    "multi": True,
                    "includeAll": True,
                    "allValue": ".*",
                    "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
                },
            ]
        },
        "panels": _panels(),
    }


def text() -> str:
    """The file."""
    return json.dumps(board(), indent=1) + "\n"


if __name__ == "__main__":
    PLACE.write_text(text(), encoding="utf-8")
