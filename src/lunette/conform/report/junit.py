"""JUnit XML, as CI systems read it: one suite per run, one test per operator and one per finding."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from lunette.conform.report.words import clean, configuration, count, headline, keys, told
from lunette.conform.result import Finding, Report, Verdict, judged


def junit(reports: Sequence[Report], when: datetime | None = None) -> str:
    """The whole document. An accepted difference is skipped with its reason; a crash or a hang is an error."""
    root = ET.Element("testsuites", name="lunette conform")
    moment = (when or datetime.now(UTC)).replace(tzinfo=None).isoformat(timespec="seconds")
    for report in reports:
        suite = ET.SubElement(root, "testsuite", name=clean(f"conform {report.backend}"), timestamp=moment)
        properties = ET.SubElement(suite, "properties")
        for name in ("backend", "version", "platform", "seed"):
            ET.SubElement(properties, "property", name=name, value=clean(getattr(report, name)))
        suite.extend(_tests(report))
        suite.set("time", f"{report.seconds:.3f}")
        ET.SubElement(suite, "system-out").text = headline(report)
        _add_up(suite)
    root.set("time", f"{sum(r.seconds for r in reports):.3f}")
    for name in ("tests", "failures", "errors", "skipped"):
        root.set(name, str(sum(int(suite.get(name, "0")) for suite in root)))
    ET.indent(root)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


def _add_up(suite: ET.Element) -> None:
    tests = suite.findall("testcase")
    suite.set("tests", str(len(tests)))
    for name, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(name, str(sum(t.find(tag) is not None for t in tests)))


def _tests(report: Report) -> Iterator[ET.Element]:
    group = f"conform.{report.backend}"
    for op, verdicts in report.operators.items():
        asked = judged(verdicts)
        test = _test(f"{group}.{op}", "agrees everywhere else")
        if not asked:
            ET.SubElement(test, "skipped", message="not supported by the backend")
        else:
            ET.SubElement(test, "system-out").text = ", ".join(f"{n} {v}" for v, n in verdicts.items() if n)
        yield test
    for key, f in zip(keys(report.findings), report.findings, strict=True):
        yield _judged(_test(f"{group}.{f.op}", key), f)
    for line in report.stale:
        test = _test(f"{group}.known", line)
        ET.SubElement(test, "failure", type="stale", message="this known difference is no longer there: remove it")
        yield test
    for line in report.elsewhere:
        test = _test(f"{group}.known", line)
        ET.SubElement(test, "skipped", message="known for other instruction sets")
        yield test
    if report.complete and not report.asked:
        test = _test(group, "something was judged")
        ET.SubElement(test, "error", type="nothing judged", message=headline(report))
        yield test
    if not report.complete:
        test = _test(group, "the run is complete")
        ET.SubElement(test, "error", type="interrupted", message="the run was interrupted; --resume goes on")
        yield test


def _test(group: str, name: str) -> ET.Element:
    # Cases of one operator are spread over all batches: a test has no time of its own.
    return ET.Element("testcase", classname=clean(group), name=clean(name), time="0")


def _judged(test: ET.Element, f: Finding) -> ET.Element:
    message = clean(f"{f.kind} in {f.op}: {count(f.count, 'case')}, the smallest is {configuration(f.case)}")
    if f.known is not None:
        ET.SubElement(test, "skipped", message=clean(f"known: {f.known}"))
        return test
    tag = "error" if f.verdict in (Verdict.CRASHED, Verdict.HUNG) else "failure"
    body = [message, "", *(f"{label}: {text}" for label, text in told(f)), "", clean(f.drawing)]
    ET.SubElement(test, tag, type=clean(f.kind), message=message).text = "\n".join(body)
    return test
