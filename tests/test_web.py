"""The page in a real browser: a person plays an episode, and reads a file of episodes, whatever stands in it."""

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from playwright.sync_api import Browser, Page, Route, expect, sync_playwright

from rolloutgym.server.environments.tasks import TaskSet

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

NASTY = "<img src=x onerror=\"document.title='pwned'\"><script>document.title='pwned'</script>\u202e &lt;b&gt; \x1b[31m"


def test_the_page_is_self_contained_and_strict(start_service: Callable[..., str], noop: Any) -> None:
    url = start_service(environments={"noop": noop}, api_key="secret")
    with httpx2.Client(base_url=url, follow_redirects=True, timeout=60) as http:
        for path in ("/", "/web"):
            page = http.get(path)
            assert (page.status_code, page.url.path) == (200, "/web/")
            # Whatever the name and the scheme under which a proxy offers it.
            assert page.history[0].headers["location"] == "web/"
        assert page.headers["content-type"].startswith("text/html")
        for name in ("style.css", "app.js", "play.js", "read.js", "show.js"):
            asset = http.get(f"/web/{name}")
            assert asset.status_code == 200
            policy = asset.headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert "//" not in asset.text.replace("// ", ""), "an address of another host"
            assert "innerHTML" not in asset.text
        for name in ("", "nothing.js", "../settings.py", "%2e%2e%2fsettings.py"):
            assert http.get(f"/web/x{name}").status_code == 404


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine")
    flags = [
        "--no-sandbox", "--headless", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
        "--disable-sync", "--no-first-run", "--disable-dev-shm-usage",
    ]  # fmt: skip
    expect.set_options(timeout=20_000)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=flags)
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    page = browser.new_page(viewport={"width": 1280, "height": 860})
    page.set_default_timeout(20_000)
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    yield page
    assert page.title() == "RolloutGym"
    page.close()
    # The browser logs every failed request by itself.
    assert [complaint for complaint in complaints if not complaint.startswith("Failed to load resource")] == []


@pytest.fixture
def hold(page: Page) -> Callable[[str], Callable[[], None]]:
    """`let_go = hold("splits|step")` keeps requests with these last words of a path on their way; each `let_go()` waits
    for the next one and lets it pass."""

    def start(words: str) -> Callable[[], None]:
        held: list[Route] = []
        page.route(re.compile(f"/({words})$"), lambda route: held.append(route))

        def let_go() -> None:
            while not held:
                page.wait_for_timeout(20)
            held.pop(0).continue_()

        return let_go

    return start


def _screenshot(page: Page, name: str) -> None:
    """For a person to look at, where TEST_SCREENSHOTS names a folder."""
    if folder := os.environ.get("TEST_SCREENSHOTS"):
        page.screenshot(path=Path(folder) / name)


@pytest.mark.browser
def test_a_person_plays_an_episode(page: Page, service_url: str) -> None:
    page.goto(service_url)
    page.get_by_label("Environment").select_option("sql")
    page.get_by_label("Split").select_option("test")
    page.get_by_label("Task").fill("3")
    page.get_by_label("Seed").fill("7")
    page.get_by_role("button", name="Begin").click()
    messages = page.locator("#conversation .message")
    expect(messages).to_have_count(2)
    box = page.get_by_label("What the model would say")
    box.fill("QUERY SELECT '<b>bold</b>' AS tag")
    page.get_by_role("button", name="Send").click()
    expect(messages).to_have_count(4)
    expect(messages.nth(3)).to_contain_text("<b>bold</b>")
    box.fill("ANSWER nobody knows")
    box.press("Control+Enter")
    expect(page.locator("#figures")).to_contain_text("answered")
    expect(page.locator("#figures")).to_contain_text("not solved")
    expect(page.locator("#act")).to_be_hidden()
    _screenshot(page, "play.png")


@pytest.mark.browser
def test_mistakes_and_limits_are_shown(page: Page, service_url: str) -> None:
    page.goto(service_url)
    page.get_by_label("Environment").select_option("code")
    page.get_by_role("button", name="Begin").click()
    expect(page.locator("#figures")).to_contain_text("running")
    page.get_by_role("button", name="Cut off here").click()
    expect(page.locator("#figures")).to_contain_text("max_turns")
    page.get_by_label("Task").fill("99999")
    page.get_by_role("button", name="Begin").click()
    expect(page.get_by_role("alert")).to_contain_text("task_not_found")
    page.get_by_label("Task").fill("0")
    page.get_by_role("button", name="Begin").click()
    expect(page.get_by_role("alert")).to_be_hidden()


@pytest.mark.browser
def test_what_is_chosen_and_written_while_answers_are_on_their_way_stays(
    page: Page, service_url: str, hold: Callable[[str], Callable[[], None]]
) -> None:
    let_go = hold("splits|num_tasks|step")
    page.goto(service_url)
    page.get_by_label("Task").fill("0")
    page.get_by_label("Seed").fill("7")
    let_go()
    let_go()
    page.get_by_label("Environment").select_option("toolcall")
    page.get_by_label("Split").select_option("test")
    for _ in range(3):  # the splits and their first one's count, which the environment's choice asks for; the split's
        let_go()
    expect(page.get_by_label("Split")).to_have_value("test")
    page.get_by_role("button", name="Begin").click()
    expect(page).to_have_url(re.compile("toolcall&split=test&task=.*&seed=7$"))
    box = page.get_by_label("What the model would say")
    box.fill("No idea.")
    page.get_by_role("button", name="Send").click()
    expect(page.get_by_role("button", name="Send")).to_be_disabled()
    box.fill("And then")
    let_go()
    expect(page.locator("#conversation .message.assistant")).to_have_count(1)
    expect(box).to_have_value("And then")


@pytest.mark.browser
def test_a_second_press_sends_nothing_and_answers_leave_the_focus_where_it_is(
    page: Page, service_url: str, hold: Callable[[str], Callable[[], None]]
) -> None:
    sent: list[str] = []
    page.on("request", lambda request: sent.append(request.post_data or "") if request.url.endswith("/step") else None)
    let_go = hold("step")
    page.goto(service_url)
    page.get_by_label("Environment").select_option("sql")
    page.get_by_role("button", name="Begin").click()
    box = page.get_by_label("What the model would say")
    box.fill("QUERY SELECT 1")
    box.press("Control+Enter")
    box.press("Control+Enter")
    box.fill("ANSWER half")
    page.get_by_label("Task").fill("5")
    let_go()
    said = page.locator("#conversation .message.assistant")
    expect(said).to_have_count(1)
    expect(page.get_by_label("Task")).to_be_focused()
    expect(box).to_have_value("ANSWER half")
    box.press("End")
    box.press_sequentially(" done")
    box.press("Control+Enter")
    let_go()
    expect(said).to_have_count(2)
    assert [json.loads(body)["action"]["text"] for body in sent] == ["QUERY SELECT 1", "ANSWER half done"]


@pytest.mark.browser
def test_an_episode_that_cannot_begin_ends_no_other(
    page: Page, service_url: str, hold: Callable[[str], Callable[[], None]]
) -> None:
    let_go = hold("reset")
    page.goto(service_url)
    page.get_by_label("Environment").select_option("sql")
    page.get_by_role("button", name="Begin").click()
    let_go()
    page.get_by_label("Task").fill("99999")
    page.get_by_role("button", name="Begin").click()
    box = page.get_by_label("What the model would say")
    box.fill("ANSWER 1")
    let_go()
    expect(page.get_by_role("alert")).to_contain_text("task_not_found")
    expect(box).to_have_value("ANSWER 1")
    page.get_by_role("button", name="Send").click()
    expect(page.locator("#figures")).to_contain_text("answered")
    page.get_by_role("button", name="Play it again").click()
    let_go()
    expect(page.locator("#figures")).to_contain_text("running")
    expect(box).to_have_value("")


@pytest.mark.browser
def test_splits_that_come_late_are_no_other_environments(
    page: Page,
    start_service: Callable[..., str],
    make_noop: Callable[[], Any],
    hold: Callable[[str], Callable[[], None]],
) -> None:
    first, second = make_noop(), make_noop()
    second.name = "other"
    second.tasks = TaskSet(list(first.tasks.of_split("test")))
    address = f"{start_service(environments={'noop': first, 'other': second})}/web/#play?environment=noop&split=test"
    let_go = hold("list_environments|splits")
    page.goto(address)
    # What the address names is kept, although it is another now.
    page.get_by_role("tab", name="Read episodes").click()
    page.get_by_role("tab", name="Play").click()
    let_go()
    let_go()
    expect(page.get_by_label("Split")).to_have_value("test")
    page.get_by_label("Split").select_option("train")
    page.get_by_label("Environment").select_option("other")
    page.get_by_label("Environment").select_option("noop")
    let_go()
    let_go()
    expect(page.get_by_role("button", name="Begin")).to_be_enabled()
    expect(page.get_by_label("Split")).to_have_value("train")


@pytest.mark.browser
def test_an_episode_can_be_played_again_from_its_address(page: Page, service_url: str) -> None:
    page.goto(service_url)
    page.get_by_label("Environment").select_option("toolcall")
    page.get_by_label("Split").select_option("test")
    page.get_by_label("Task").fill("0")
    page.get_by_role("button", name="Begin").click()
    figures = page.locator("#figures")
    expect(figures).to_contain_text("running")
    # The seed was drawn by the service, and is exact although a browser's numbers are not.
    task, seed = (figures.locator("tr", has_text=name).locator("td").inner_text() for name in ("task", "seed"))
    episodes = httpx2.post(f"{service_url}/toolcall/reset", json={"task_id": task, "seed": int(seed)}, timeout=60)
    assert episodes.json()["seed"] == int(seed) < 2**53
    address = page.url
    page.get_by_label("What the model would say").fill("No idea.")
    # Twice, as an impatient person does: one step.
    page.keyboard.press("Control+Enter")
    page.keyboard.press("Control+Enter")
    expect(page.locator("#conversation .message.assistant")).to_have_count(1)
    expect(page.get_by_text("Over: mismatch, not solved")).to_be_in_viewport()
    expect(page.get_by_role("button", name="Play it again")).to_be_focused()
    page.keyboard.press("Enter")
    expect(figures).to_contain_text("running")
    expect(page.get_by_label("What the model would say")).to_be_focused()
    assert page.url == address
    page.goto("about:blank")
    page.goto(address)
    expect(page.get_by_label("Environment")).to_have_value("toolcall")
    expect(page.get_by_label("Split")).to_have_value("test")
    expect(page.get_by_label("Task")).to_have_value(task)
    expect(page.get_by_label("Seed")).to_have_value(seed)
    page.get_by_role("button", name="Begin").click()
    expect(figures).to_contain_text(task)
    page.get_by_text("Tools").scroll_into_view_if_needed()
    tool = figures.locator("details").first
    tool.locator("summary").click()
    tool.get_by_role("button", name="Write a call").click()
    expect(page.get_by_label("What the model would say")).to_have_value(re.compile(r'<tool_call>\n\{"name":"'))


@pytest.mark.browser
def test_the_page_is_of_use_by_keyboard_and_says_when_nobody_answers(page: Page, service_url: str) -> None:
    page.goto(service_url)
    expect(page.get_by_label("Split")).not_to_be_empty()
    page.get_by_role("tab", name="Play").focus()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("tab", name="Read episodes")).to_be_focused()
    expect(page.locator("#read")).to_be_visible()
    page.keyboard.press("ArrowLeft")
    expect(page.locator("#play")).to_be_visible()
    page.get_by_role("button", name="Begin").click()
    box = page.get_by_label("What the model would say")
    box.fill("DESCRIBE something")
    page.route("**/step", lambda route: route.abort())
    box.press("Control+Enter")
    expect(page.get_by_role("alert")).to_contain_text("cannot be reached")
    expect(page.get_by_role("alert")).to_be_in_viewport()
    expect(box).to_have_value("DESCRIBE something")
    page.unroute("**/step")
    box.press("Control+Enter")
    expect(page.locator("#conversation .message.assistant")).to_have_count(1)
    expect(box).to_be_in_viewport()
    expect(box).to_be_focused()


@pytest.mark.browser
def test_the_page_asks_for_the_key(page: Page, start_service: Callable[..., str], noop: Any) -> None:
    page.goto(start_service(environments={"noop": noop}, api_key="secret"))
    expect(page.get_by_role("alert")).to_contain_text("unauthorized")
    page.get_by_label("API key").fill("secret")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_be_hidden()
    page.get_by_role("button", name="Begin").click()
    expect(page.locator("#figures")).to_contain_text("running")


@pytest.mark.browser
def test_episodes_of_a_file_are_read_as_text(page: Page, service_url: str, tmp_path: Path) -> None:
    episodes: list[Any] = [
        {"kind": "run", "environment": "sql"},
        {
            "environment": "sql", "task_id": NASTY, "seed": 3, "episode_return": 0.75, "success": True, "turns": 2,
            "stop_reason": "answered", "components": {NASTY: 0.75},
            "transcript": [
                {"role": "system", "content": "You explore."},
                {"role": "user", "content": NASTY},
                {"role": NASTY, "content": [{"type": "text", "text": NASTY}]},
                {"role": "assistant", "content": None,
                 "tool_calls": [{"function": {"name": NASTY, "arguments": {"x": 1}}}]},
            ],
        },
        {"task_id": "second", "success": False, "episode_return": -0.1, "stop_reason": "mismatch", "turns": 1},
        {"task_id": "third", "fault": {"code": "worker_lost", "message": NASTY}},
        *({"task_id": f"more-{number}", "success": False, "reward": 0} for number in range(400)),
    ]  # fmt: skip
    file = tmp_path / "episodes.jsonl"
    file.write_text("\n".join([*map(json.dumps, episodes), "not json", "[1]", ""]), encoding="utf-8")
    page.goto(f"{service_url}/web/#read")
    page.locator("#file").set_input_files(file)
    rows = page.locator("#episodes tbody tr")
    expect(rows).to_have_count(200)
    expect(page.locator("#count")).to_have_text("403 of 403")
    expect(page.get_by_role("alert")).to_contain_text("2 line(s)")
    rows.nth(0).click()
    expect(page.locator("#episode .message")).to_have_count(4)
    expect(page.locator("#episode .message").nth(1).locator("pre")).to_have_text(NASTY)
    expect(page.locator("#episode")).to_contain_text("0.75")
    _screenshot(page, "read.png")
    page.get_by_role("button", name="Next").click()
    page.get_by_role("button", name="Next").click()
    expect(rows).to_have_count(3)
    page.get_by_label("Show").select_option("fault")
    expect(rows).to_have_count(1)
    page.get_by_label("Show").select_option("")
    page.set_viewport_size({"width": 390, "height": 844})
    rows.nth(150).press("Enter")
    expect(page.locator("#episode h2").first).to_be_in_viewport()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.evaluate("scrollTo(0, 0)")
    page.get_by_label("Search").fill("MISMATCH")
    expect(rows).to_have_count(1)
    rows.nth(0).press("Enter")
    expect(page.locator("#episode")).to_contain_text("second")
