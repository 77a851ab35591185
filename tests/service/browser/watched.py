"""Pages that a test opens, and what must not happen on them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request, Response

from tests.patience import PATIENCE

#: Widths and colours that every page is looked at with.
LOOKS: dict[str, dict[str, Any]] = {
    "desktop": {"viewport": {"width": 1280, "height": 800}},
    "dark": {"viewport": {"width": 1280, "height": 800}, "color_scheme": "dark"},
    "phone": {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True},
    "dark phone": {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True, "color_scheme": "dark"},
}

#: What axe looks for: levels A and AA of the Web Content Accessibility Guidelines, and good practice.
RULES = {
    "resultTypes": ["violations"],
    "runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"],
    "preload": False,
}

#: A page that is left ends the requests of its live parts.
_LEFT = "net::ERR_ABORTED"


@dataclass
class Watched:
    """Contexts of a browser whose pages are watched: what they complain of fails the test at its end."""

    browser: Browser
    complaints: list[str] = field(default_factory=list)
    contexts: list[BrowserContext] = field(default_factory=list)

    def page(self, base: str, look: str = "desktop") -> Page:
        """An empty page in a context of its own, that is, not logged in."""
        context = self.browser.new_context(base_url=base, reduced_motion="reduce", **LOOKS[look])
        context.set_default_timeout(PATIENCE * 1000)
        self.contexts.append(context)
        page = context.new_page()
        page.on("console", self._on_console)
        page.on("pageerror", lambda error: self.complaints.append(f"{page.url}: error in a script: {error}"))
        page.on("requestfailed", self._on_failed)
        page.on("response", self._on_response)
        return page

    def _on_console(self, message: ConsoleMessage) -> None:
        # The console also shows what the content security policy has stopped.
        if message.type in {"error", "warning"}:
            self.complaints.append(f"{message.location.get('url')}: console {message.type}: {message.text}")

    def _on_failed(self, request: Request) -> None:
        if request.failure != _LEFT:
            self.complaints.append(f"{request.method} {request.url}: {request.failure}")

    def _on_response(self, response: Response) -> None:
        if response.status >= 400:
            self.complaints.append(f"{response.request.method} {response.url}: {response.status}")

    def close(self) -> None:
        """Close the pages."""
        for context in self.contexts:
            context.close()


def barriers(page: Page) -> list[str]:
    """What axe finds on a page that is serious or critical."""
    found = Axe().run(page, options=RULES).response["violations"]
    return [
        f"{page.url}: {one['impact']}: {one['id']}: {one['help']}: {[node['html'][:160] for node in one['nodes'][:3]]}"
        for one in found
        if one["impact"] in {"serious", "critical"}
    ]


def too_wide(page: Page) -> str:
    """What makes a page scroll sideways; empty if nothing does."""
    wide: int = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    return f"{page.url}: {wide} px wider than its window" if wide > 0 else ""
