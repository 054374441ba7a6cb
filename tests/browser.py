"""The page of a report in a real browser: Debian's chromium, spoken to over its debugging pipe.

Run by `make browser`, not by `make test`: pytest tests/browser.py
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from base64 import b64decode
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from lunette.conform.report.page import html
from specimen import clean_report, specimen

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
SCHEMES = ("light", "dark")


class Browser:
    """One tab, and everything it was told to load or complained about."""

    def __init__(self, profile: Path) -> None:
        assert CHROMIUM is not None, "the browser is Debian's: apt-get install chromium"
        theirs_in, self.to = os.pipe()
        self.back, theirs_out = os.pipe()
        # Chromium reads commands from descriptor 3 and answers on 4, each message ended by a zero byte.
        shell = ["bash", "-c", f'exec "$@" 3<&{theirs_in} 4>&{theirs_out} 2>/dev/null', "bash", CHROMIUM]
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-pipe"]
        self.process = subprocess.Popen(
            [*shell, *flags, f"--user-data-dir={profile}"], pass_fds=(theirs_in, theirs_out), stdout=subprocess.DEVNULL
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self.numbers, self.rest, self.events = count(1), b"", list[dict[str, Any]]()
        self.session: str | None = None
        target = self("Target.createTarget", url="about:blank")["targetId"]
        self.session = self("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self(f"{domain}.enable")

    def __call__(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and wait for its answer."""
        number = next(self.numbers)
        message = {"id": number, "method": method, "params": parameters}
        message |= {"sessionId": self.session} if self.session else {}
        os.write(self.to, json.dumps(message).encode() + b"\0")
        while (answer := self._next()).get("id") != number:
            self.events.append(answer)
        assert "error" not in answer, answer
        result: dict[str, Any] = answer["result"]
        return result

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self.rest:
            more = os.read(self.back, 1 << 16)
            assert more, "the browser went away"
            self.rest += more
        message, self.rest = self.rest.split(b"\0", 1)
        answer: dict[str, Any] = json.loads(message)
        return answer

    def open(self, page: Path) -> None:
        """Load a page and wait until it is there."""
        self.events.clear()
        self("Page.navigate", url=page.as_uri())
        while not any(e.get("method") == "Page.loadEventFired" for e in self.events):
            self.events.append(self._next())

    def evaluate(self, expression: str) -> Any:
        """The value of an expression of JavaScript."""
        answer = self("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def look(self, scheme: str = "light", width: int = 1200, height: int = 900) -> None:
        """Choose a colour scheme and a size of the window."""
        self("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def close(self) -> None:
        """End it."""
        self.process.kill()
        self.process.wait()
        os.close(self.to)
        os.close(self.back)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    made = Browser(tmp_path_factory.mktemp("profile"))
    yield made
    made.close()


@pytest.fixture(scope="module", params=["one", "many", "clean"])
def page(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    reports = {
        "one": [specimen()],
        "many": [specimen(), specimen("jax", "jax 0.10.2"), clean_report()],
        "clean": [clean_report()],
    }
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(html(reports[request.param]), encoding="utf-8")
    return path


def test_nothing_is_loaded_and_nothing_runs(browser: Browser, page: Path) -> None:
    browser.open(page)
    urls = [e["params"]["request"]["url"] for e in browser.events if e["method"] == "Network.requestWillBeSent"]
    assert urls == [page.as_uri()]
    complaints = [e for e in browser.events if e["method"] in ("Runtime.exceptionThrown", "Log.entryAdded")]
    assert not complaints
    assert browser.evaluate("document.title").startswith("Conformance: ")
    assert browser.evaluate("document.querySelectorAll('script,img,iframe,object,link').length") == 0


def test_a_watch_on_the_network_sees_a_page_that_does_load(browser: Browser, tmp_path: Path) -> None:
    """Or else the test above would prove nothing."""
    path = tmp_path / "bad.html"
    path.write_text("<img src='other.png'><script>document.title='owned'</script>", encoding="utf-8")
    browser.open(path)
    urls = [e["params"]["request"]["url"] for e in browser.events if e["method"] == "Network.requestWillBeSent"]
    assert len(urls) == 2 and browser.evaluate("document.title") == "owned"


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", [1200, 390])
def test_everything_is_seen_and_nothing_sticks_out(browser: Browser, page: Path, scheme: str, width: int) -> None:
    browser.look(scheme, width)
    browser.open(page)
    every = "[...document.querySelectorAll('section,article,svg.plot,.heat td')]"
    assert browser.evaluate(f"{every}.filter(e=>!e.checkVisibility()).length") == 0
    flat = "[...document.querySelectorAll('section,article,svg.plot')].filter(e=>e.getBoundingClientRect().height<20)"
    assert browser.evaluate(f"{flat}.length") == 0
    over = "[...document.querySelectorAll('main *')].filter(e=>e.scrollWidth>innerWidth)"
    loose = f"{over}.filter(e=>!e.closest('.scroll,.window,pre')).map(e=>e.outerHTML.slice(0,99))"
    assert browser.evaluate("document.documentElement.scrollWidth") <= width, browser.evaluate(loose)


CONTRAST = """(() => {
  const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const rgba = c => { canvas.clearRect(0,0,1,1); canvas.fillStyle = c; canvas.fillRect(0,0,1,1);
                      return [...canvas.getImageData(0,0,1,1).data]; };
  const light = c => { const v = c.slice(0,3).map(x => (x/=255) <= .03928 ? x/12.92 : ((x+.055)/1.055)**2.4);
                       return .2126*v[0] + .7152*v[1] + .0722*v[2]; };
  const behind = e => { for (; e; e = e.parentElement) { const c = rgba(getComputedStyle(e).backgroundColor);
                        if (c[3] > 0) return c; } return [255,255,255,255]; };
  let least = 99, words = '';
  for (const e of document.querySelectorAll('h1,h2,h3,p,td,th,dd,dt,pre,nav a,.fact b,.fact span,small,.badge')) {
    if (!e.innerText || !e.checkVisibility()) continue;
    const a = light(rgba(getComputedStyle(e).color)), b = light(behind(e));
    const ratio = (Math.max(a,b)+.05)/(Math.min(a,b)+.05);
    if (ratio < least) { least = ratio; words = e.className + ' ' + e.tagName + ': ' + e.innerText.slice(0,40); }
  }
  return [least, words];
})()"""


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_word_can_be_read(browser: Browser, page: Path, scheme: str) -> None:
    """WCAG's contrast (AA) everywhere; both schemes differ."""
    browser.look(scheme)
    browser.open(page)
    least, words = browser.evaluate(CONTRAST)
    assert least >= 4.5, (least, words)
    back = browser.evaluate("getComputedStyle(document.body).backgroundColor")
    red = int(back.removeprefix("rgb(").split(",")[0])
    assert (red > 128) == (scheme == "light")


def test_links_lead_to_their_class(browser: Browser, page: Path) -> None:
    browser.look()
    browser.open(page)
    for at in range(browser.evaluate("document.querySelectorAll('nav a').length")):
        browser.evaluate(f"document.querySelectorAll('nav a')[{at}].click()")
        away = browser.evaluate("Math.abs(document.querySelector(location.hash).getBoundingClientRect().top)")
        end = browser.evaluate("innerHeight + scrollY >= document.documentElement.scrollHeight - 2")
        assert away < 40 or end


def test_hostile_words_are_shown_as_words(browser: Browser, page: Path) -> None:
    browser.open(page)
    shown = browser.evaluate("document.body.innerText")
    assert ("<script>document.title='owned'</script>" in shown) == ("known" in shown and "torch" in shown)
    assert "\x1b" not in shown


def test_it_is_not_blank(browser: Browser, page: Path) -> None:
    browser.look()
    browser.open(page)
    picture = b64decode(browser("Page.captureScreenshot", format="png")["data"])
    assert picture.startswith(b"\x89PNG") and len(picture) > 20_000
