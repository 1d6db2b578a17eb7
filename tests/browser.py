"""A real browser for the tests of pages: Debian's chromium, driven by playwright."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or "/usr/bin/chromium"
SIZES = {"wide": (1300, 900), "phone": (400, 800), "projector": (1920, 1080)}
PATIENCE = 120_000
"""Milliseconds until what is waited for has failed to come, on a machine that does other things, too."""


def launched() -> Iterator[Any]:
    """Yield the browser; for a fixture of a module, since its loop must not meet those of other tests."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    if not Path(CHROMIUM).exists():
        pytest.skip("needs Debian's chromium")
    quiet = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(quiet), timeout=PATIENCE)
        yield browser
        browser.close()


def new_context(browser: Any, size: str, scheme: str) -> Any:
    width, height = SIZES[size]
    phone = {"has_touch": True, "is_mobile": True} if size == "phone" else {}
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme, **phone)
    context.set_default_timeout(PATIENCE)
    return context


def troubles_of(page: Any, *own: str) -> list[str]:
    """Return a list of what goes wrong on a page from now on; its addresses begin with one of `own`."""
    found: list[str] = []
    page.on("pageerror", lambda error: found.append(str(error)))
    page.on("request", lambda one: None if one.url.startswith(own) else found.append(one.url))
    page.on("dialog", lambda dialog: found.append(dialog.message))
    page.on("console", lambda said: found.append(said.text) if "Content Security" in said.text else None)
    return found


@contextmanager
def visiting(browser: Any, *addresses: str) -> Iterator[Callable[..., Any]]:
    """Yield what opens an empty page; in the end no script failed, and only these addresses were asked for."""
    contexts, troubles = list[Any](), list[list[str]]()

    def opened(size: str = "wide", scheme: str = "light") -> Any:
        contexts.append(new_context(browser, size, scheme))
        page = contexts[-1].new_page()
        troubles.append(troubles_of(page, *addresses))
        return page

    yield opened
    for context in contexts:
        context.close()
    assert [trouble for of_page in troubles for trouble in of_page] == []


def tab_to(page: Any, selector: str, key: str = "Tab") -> None:
    """Press the key until the focus is there."""
    for _ in range(40):
        page.keyboard.press(key)
        if page.evaluate("selector => document.activeElement.matches(selector)", selector):
            return
    raise AssertionError(f"{key} does not reach {selector}")


def barriers(page: Any) -> list[str]:
    """What axe-core finds that bars people who use a screen reader, a keyboard or little contrast."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs axe-playwright-python")
    violations = axe.Axe().run(page).response["violations"]
    return [f"{rule['id']}: {node['html']}" for rule in violations for node in rule["nodes"]]
