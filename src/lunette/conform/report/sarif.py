"""SARIF 2.1.0: one rule per class of failure, one result per finding."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any, Final
from urllib.parse import quote

from lunette.conform.report.words import clean, configuration, count, keys, told
from lunette.conform.result import Finding, Report
from lunette.version import VERSION

SCHEMA: Final = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
Place = tuple[str, int]
"""A file, relative to where the code is kept, and a line."""


def sarif(reports: Sequence[Report], places: Mapping[str, Place] | None = None) -> str:
    """The whole document. `places` says where the source of a backend is: readers annotate that line."""
    runs = [_run(report, (places or {}).get(report.backend)) for report in reports]
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": runs}, indent=1) + "\n"


def _run(report: Report, place: Place | None) -> dict[str, Any]:
    kinds = list(dict.fromkeys(f.kind for f in report.findings))
    driver = {
        "name": "lunette conform",
        "semanticVersion": VERSION,
        "rules": [_rule(kind, report) for kind in kinds],
    }
    results = [
        _result(f, key, kinds.index(f.kind), report, place)
        for key, f in zip(keys(report.findings), report.findings, strict=True)
    ]
    return {
        "tool": {"driver": driver},
        "automationDetails": {"id": clean(f"lunette-conform/{report.backend}/{report.seed}")},
        "invocations": [
            {
                "executionSuccessful": report.complete,
                "exitCode": report.exit_status,
                "toolExecutionNotifications": [
                    {"level": "error", "message": {"text": clean(f"known difference is no longer there: {line}")}}
                    for line in report.stale
                ]
                + [
                    {"level": "note", "message": {"text": clean(f"known for other instruction sets: {line}")}}
                    for line in report.elsewhere
                ],
            }
        ],
        "columnKind": "unicodeCodePoints",
        "results": results,
        "properties": {
            "backend": clean(report.backend),
            "backendVersion": clean(report.version),
            "platform": clean(report.platform),
            "verdicts": dict(report.verdicts),
        },
    }


def _rule_id(kind: str) -> str:
    return clean(kind).replace(" ", "-")


def _rule(kind: str, report: Report) -> dict[str, Any]:
    first = next(f for f in report.findings if f.kind == kind)
    return {
        "id": _rule_id(kind),
        "shortDescription": {"text": clean(kind)},
        "fullDescription": {"text": clean(first.rule) or clean(kind)},
        "defaultConfiguration": {"level": "error"},
    }


def _result(f: Finding, key: str, index: int, report: Report, place: Place | None) -> dict[str, Any]:
    lines = [f"{f.kind} in {f.op}: {count(f.count, 'case')}, the smallest is {configuration(f.case)}."]
    lines += [f"{label}: {text}" for label, text in told(f)]
    function, _, meant = report.backend.partition(" as ")
    name = function.replace(":", ".") if meant else f"{report.backend}.{f.op}"
    location: dict[str, Any] = {"logicalLocations": [{"fullyQualifiedName": clean(name), "kind": "function"}]}
    if place is not None:
        uri = quote(PurePath(place[0]).as_posix())
        location["physicalLocation"] = {"artifactLocation": {"uri": uri}, "region": {"startLine": place[1]}}
    result = {
        "ruleId": _rule_id(f.kind),
        "ruleIndex": index,
        "level": "error" if f.known is None else "note",
        "message": {"text": clean("\n".join(lines))},
        "locations": [location],
        "occurrenceCount": f.count,
        "partialFingerprints": {"lunetteFinding/v1": clean(f"{report.backend}/{key}")},
        "properties": {
            "verdict": str(f.verdict),
            "reproducer": clean(f.reproducer),
            "case": f.case.to_json(),
            "drawing": clean(f.drawing),
        },
    }
    if f.known is not None:
        result["suppressions"] = [{"kind": "external", "justification": clean(f.known)}]
    return result
