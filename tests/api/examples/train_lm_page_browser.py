#!/usr/bin/env python3
"""Looks at a page of train_lm --html in a headless browser: `train_lm_page_browser.py PAGE [PNG_FOLDER]`.

Method: the first browser of BROWSERS that is on PATH opens the page, with no network, and is spoken to over
        its DevTools pipe: it is shown on a desktop and on a phone, in light and in dark, zoomed by button,
        wheel, key, drag and pinch, and once without its script. With PNG_FOLDER, keeps pictures of it there.

Exit status: 0 all checks passed; 1 one failed, which is named; 77 there is no browser, or it does not start.
"""

import base64
import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = ("--headless", "--remote-debugging-pipe", "--disable-gpu", "--no-first-run", "--disable-sync",
         "--disable-background-networking", "--disable-component-update", "--disable-default-apps",
         "--disable-dev-shm-usage", "--disable-breakpad", "--hide-scrollbars", "--force-color-profile=srgb",
         "--host-resolver-rules=MAP * ~NOTFOUND")
SKIPPED = 77
PATIENCE = 180.0  # seconds for all of it, on a machine under load; it takes a few
PHONE, TABLET, DESKTOP = (390, 844), (768, 1024), (1280, 900)


class NoBrowser(Exception):
    """There is none here that runs."""


class Browser:
    """A browser of our own: one page of it, and its end."""

    def __init__(self, program, folder):
        flags = [*FLAGS, f"--user-data-dir={folder}"]
        if os.geteuid() == 0:
            flags.append("--no-sandbox")  # it refuses to run as root with one
        ours, theirs = os.pipe(), os.pipe()  # to it, from it
        inherited = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (ours[0], theirs[1])]

        def pipe_ends():
            os.dup2(inherited[0], 3)
            os.dup2(inherited[1], 4)

        self.errors = open(Path(folder) / "stderr", "w+b")
        self.process = subprocess.Popen(
            [program, *flags, "about:blank"], preexec_fn=pipe_ends, pass_fds=(3, 4), start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=self.errors,
            env={**os.environ, "TMPDIR": folder})
        for end in (ours[0], theirs[1], *inherited):
            os.close(end)
        self.to, self.reply = ours[1], theirs[0]
        self.number, self.session, self.buffer, self.events = 0, None, b"", []
        self.until = time.monotonic() + PATIENCE

    def close(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        for end in (self.to, self.reply):
            os.close(end)
        self.errors.close()

    def said(self):
        self.errors.seek(0)
        return " / ".join(self.errors.read().decode(errors="replace").split("\n")[-4:]).strip(" /")

    def _message(self):
        while b"\0" not in self.buffer:
            if not select.select([self.reply], [], [], max(0.0, self.until - time.monotonic()))[0]:
                raise TimeoutError(f"the browser has not shown all within {PATIENCE:.0f} s")
            data = os.read(self.reply, 1 << 20)
            if not data:
                raise EOFError("the browser has ended")
            self.buffer += data
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        while True:
            reply = self._message()
            if reply.get("id") == self.number:
                if "error" in reply:
                    raise RuntimeError(f"{method}: {reply['error']}")
                return reply["result"]
            self.events.append(reply)

    def wait_for(self, event):
        while not any(seen.get("method") == event for seen in self.events):
            self.events.append(self._message())

    def run(self, script):
        """The value of a JavaScript expression."""
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(f"{script}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def open_page(self, address):
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.show(address)

    def show(self, address):
        self.events.clear()
        self.call("Page.navigate", url=address)
        self.wait_for("Page.loadEventFired")

    def size(self, width_height):
        width, height = width_height
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1,
                  mobile=width < 600)
        self.call("Emulation.setTouchEmulationEnabled", enabled=width < 600, maxTouchPoints=5)
        self.settle()

    def settle(self):
        self.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def mouse(self, kind, x, y, **more):
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def key(self, key):
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, **({"text": key} if kind == "keyDown" and
                                                                       len(key) == 1 else {}))

    def touch(self, kind, *points):
        self.call("Input.dispatchTouchEvent", type=kind,
                  touchPoints=[{"x": x, "y": y, "id": i} for i, (x, y) in enumerate(points)])

    def picture(self, path):
        data = self.call("Page.captureScreenshot", captureBeyondViewport=True)["data"]
        Path(path).write_bytes(base64.b64decode(data))


def check(holds, what):
    if not holds:
        raise AssertionError(what)


# ---- what the page shows

COLOURS = """(() => {
  const seen = (root, kind, what) => [...new Set([...document.querySelectorAll(root + " " + kind)]
    .map((element) => getComputedStyle(element)[what]))].sort();
  return {
    bars: seen("svg.lanes", "rect", "fill"), barLegend: seen("svg.swatch", "rect", "fill"),
    lines: seen("svg.loss", "polyline", "stroke"), lineLegend: seen("svg.swatch", "polyline", "stroke"),
    entries: document.querySelectorAll("ul.legend li svg.swatch:not(.empty)").length,
    untold: [...document.querySelectorAll("ul.legend li")].filter((li) => !li.textContent.trim()).length,
    page: getComputedStyle(document.body).backgroundColor,
    texts: [...document.querySelectorAll("h1,h2,h3,p,li,td,th,pre,.names,.below span,button,output")]
      .filter((element) => element.getClientRects().length && element.ariaDisabled !== "true")
      .map((element) => {
        let behind = element;
        while (getComputedStyle(behind).backgroundColor === "rgba(0, 0, 0, 0)" && behind.parentElement)
          behind = behind.parentElement;
        const style = getComputedStyle(element);
        return [element.textContent.slice(0, 30), style.color, getComputedStyle(behind).backgroundColor,
                parseFloat(style.fontSize)];
      }),
  };
})()"""


def luminance(colour):
    parts = [float(part) / 255 for part in colour[colour.index("(") + 1:-1].split(",")[:3]]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def check_colours(browser, scheme):
    """The legend has each colour of the drawings and no other; colours and texts stand out (WCAG 2, AA)."""
    browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    browser.settle()
    seen = browser.run(COLOURS)
    check(luminance(seen["page"]) < 0.1 if scheme == "dark" else luminance(seen["page"]) > 0.9,
          f"the page is {seen['page']} in {scheme}")
    for drawn, told in (("bars", "barLegend"), ("lines", "lineLegend")):
        check(seen[drawn] == seen[told], f"{scheme}: {drawn} are {seen[drawn]}, the legend has {seen[told]}")
    colours = seen["barLegend"] + seen["lineLegend"]
    check(len(set(colours)) == seen["entries"], f"{scheme}: two entries of the legend share one of {colours}")
    check(seen["untold"] == 0, "an entry of the legend says nothing")
    check("rgb(0, 0, 0)" not in colours, f"{scheme}: a bar or line has a class without a colour")
    for colour in colours:
        check(contrast(colour, seen["page"]) >= 3.0, f"{scheme}: {colour} is hard to see on {seen['page']}")
    for text, colour, behind, size in seen["texts"]:
        check(contrast(colour, behind) >= 4.5, f"{scheme}: '{text}' is hard to read, {colour} on {behind}")
        check(size >= 12, f"'{text}' is {size} px high")


def check_fit(browser, width_height):
    browser.size(width_height)
    width = browser.run("document.scrollingElement.scrollWidth")
    check(width <= width_height[0], f"the page is {width} px wide on a screen of {width_height[0]}")


def check_names(browser, width_height):
    """Names of lanes stand whole beside their bars, unless they are very long."""
    browser.size(width_height)
    cut = browser.run("""[...document.querySelectorAll(".names:not(.values) span")]
        .filter((name) => name.textContent.length < 25 && name.scrollWidth > name.clientWidth)
        .map((name) => name.textContent)""")
    check(not cut, f"names of lanes are cut on a screen of {width_height[0]}: {cut}")


def check_marks(browser):
    """Names of steps do not hide each other. Returns how many there are."""
    rows = browser.run("""[...document.querySelectorAll(".marks")].map((row) => [...row.children]
        .filter((name) => name.getClientRects().length)
        .map((name) => [name.getBoundingClientRect().left - row.getBoundingClientRect().left,
                        name.getBoundingClientRect().width]))""")
    for row in rows:
        for (left, width), (following, _) in zip(row, row[1:]):
            check(left + width <= following + 0.5, f"names of steps lie on each other: {row}")
    return sum(len(row) for row in rows)


def check_words(browser, has_timeline):
    words = browser.run("document.body.innerText")
    wanted = ["Exposed communication is the time in which a rank computes nothing"]
    check(all(word in words for word in wanted), f"the page does not say: {wanted}")
    unnamed = browser.run("""[...document.querySelectorAll("button, svg[role=img], #timeline[tabindex]")]
        .filter((element) => !(element.ariaLabel || element.textContent.trim())).length""")
    check(unnamed == 0, f"{unnamed} parts have no name for those who cannot see them")
    shown = browser.run("document.getElementById('controls').getClientRects().length > 0")
    check(shown == has_timeline, "the buttons are there without a timeline, or a timeline without them")
    if has_timeline:
        check(browser.run("document.getElementById('why-these')?.textContent.length > 0"),
              "the page does not say why it shows these ranks")


# ---- what a hand does

def visible(browser):
    """Begin and end of each picture, which are one, as is the text above it."""
    boxes = browser.run("""[...document.querySelectorAll("svg.lanes")].map((svg) =>
        [svg.viewBox.baseVal.x, svg.viewBox.baseVal.x + svg.viewBox.baseVal.width])""")
    check(all(box == boxes[0] for box in boxes), f"the pictures show different times: {boxes}")
    said = browser.run("document.getElementById('range').textContent").split()
    check(abs(float(said[0]) * 1000 - boxes[0][0]) < 101 and abs(float(said[2]) * 1000 - boxes[0][1]) < 101,
          f"the text says {said}, the picture shows {boxes[0]}")
    return boxes[0]


def middle(browser):
    browser.run("document.querySelector('svg.lanes').scrollIntoView({block: 'center'})")
    browser.settle()
    return browser.run("""(() => { const box = document.querySelector("svg.lanes").getBoundingClientRect();
        return [box.left + box.width / 2, box.top + 12, box.width]; })()""")


def press(browser, name):
    browser.run(f"document.getElementById('{name}').scrollIntoView({{block: 'center'}})")
    x, y = browser.run(f"""(() => {{ const box = document.getElementById("{name}").getBoundingClientRect();
        return [box.left + box.width / 2, box.top + box.height / 2]; }})()""")
    for kind in ("mousePressed", "mouseReleased"):
        browser.mouse(kind, x, y, button="left", clickCount=1)


def changes(browser, act, fits, what):
    before = visible(browser)
    act()
    browser.settle()
    after = visible(browser)
    check(fits(before, after), f"{what}: {before} became {after}")


def length(view):
    return view[1] - view[0]


def closer(before, after):
    return length(after) < 0.9 * length(before)


def wider(before, after):
    return length(after) > 1.1 * length(before)


def later(before, after):
    return after[0] > before[0] and abs(length(after) - length(before)) < 1e-3 * length(before)


def earlier(before, after):
    return later(after, before)


def check_buttons_and_keys(browser):
    whole = visible(browser)
    span = float(browser.run("document.getElementById('timeline').dataset.span"))
    check(whole[0] == 0 and abs(whole[1] - span) < 1e-6 * span, f"of {span} us the page first shows {whole}")
    steps = (("in", closer), ("later", later), ("earlier", earlier), ("in", closer), ("out", wider),
             ("reset", lambda before, after: before != whole and after == whole))
    for name, fits in steps:
        changes(browser, lambda: press(browser, name), fits, f"button {name}")
    browser.run("document.getElementById('timeline').focus()")
    steps = (("+", closer), ("ArrowRight", later), ("ArrowLeft", earlier), ("=", closer), ("-", wider),
             ("0", lambda before, after: before != whole and after == whole))
    for key, fits in steps:
        changes(browser, lambda: browser.key(key), fits, f"key {key}")
    for key in "nnlp":
        browser.key(key)
    browser.settle()
    chosen = browser.run("document.querySelectorAll('.chosen').length")
    check(chosen == 1, f"keys N, L and P choose {chosen} bars")
    browser.key("Escape")
    check(browser.run("document.getElementById('tip').hidden"), "Escape leaves the tip")


def check_mouse(browser):
    whole = visible(browser)
    x, y, width = middle(browser)
    at = x - width / 4  # the time there, a quarter of the whole, stays there

    def kept(before, after):
        return closer(before, after) and abs((length(after) / 4 + after[0]) - whole[1] / 4) < 0.01 * whole[1]

    changes(browser, lambda: browser.mouse("mouseWheel", at, y, deltaX=0, deltaY=-200), kept, "wheel")

    def drag(to):
        browser.mouse("mousePressed", x, y, button="left", clickCount=1)
        browser.mouse("mouseMoved", x + to / 2, y, button="left", buttons=1)
        browser.mouse("mouseMoved", x + to, y, button="left", buttons=1)
        browser.mouse("mouseReleased", x + to, y, button="left", clickCount=1)

    changes(browser, lambda: drag(-100), later, "drag")
    changes(browser, lambda: browser.mouse("mouseWheel", x, y, deltaX=-100, deltaY=0), earlier, "wheel left")
    changes(browser, lambda: browser.mouse("mouseWheel", x, y, deltaX=0, deltaY=200), wider, "wheel back")
    changes(browser, lambda: press(browser, "reset"), lambda _, after: after == whole, "reset")


TIP = """(() => { const tip = document.getElementById("tip");
        const box = tip.getBoundingClientRect();
        return {shown: !tip.hidden, text: tip.textContent, width: innerWidth, height: innerHeight,
                sides: [box.left, box.right, box.top, box.bottom]}; })()"""


def check_tip(browser, act, what):
    x, y = browser.run("""(() => { const bars = [...document.querySelectorAll("svg.lanes rect")];
        const width = (bar) => bar.getBoundingClientRect().width;
        const bar = bars.reduce((a, b) => width(b) > width(a) ? b : a);
        bar.scrollIntoView({block: "center"}); const box = bar.getBoundingClientRect();
        return [box.left + box.width / 2, box.top + box.height / 2]; })()""")
    browser.settle()
    act(x, y)
    browser.settle()
    tip = browser.run(TIP)
    check(tip["shown"] and "rank" in tip["text"] and "from" in tip["text"], f"{what} shows no tip: {tip}")
    # It is placed anew when the page scrolls, wherever it stood, such as at the right edge.
    browser.run("""document.getElementById("tip").style.left = `${innerWidth - 30}px`;
                   window.dispatchEvent(new Event("scroll"))""")
    again = browser.run(TIP)
    for seen in (tip, again):
        left, right, top, bottom = seen["sides"]
        check(0 <= left < right <= seen["width"] and 0 <= top < bottom <= seen["height"],
              f"tip is outside: {seen}")
    check(again["sides"][1] - again["sides"][0] == tip["sides"][1] - tip["sides"][0],
          f"the tip is squeezed after scrolling: {again}")


def check_touch(browser):
    whole = visible(browser)
    x, y, _ = middle(browser)

    def pinch():
        browser.touch("touchStart", (x - 30, y), (x + 30, y))
        for spread in (50, 70, 90):
            browser.touch("touchMove", (x - spread, y), (x + spread, y))
        browser.touch("touchEnd")

    def swipe():
        browser.touch("touchStart", (x, y))
        for by in (30, 60, 90):
            browser.touch("touchMove", (x - by, y))
        browser.touch("touchEnd")

    def tap(at_x, at_y):
        browser.touch("touchStart", (at_x, at_y))
        browser.touch("touchEnd")

    changes(browser, pinch, closer, "pinch")
    changes(browser, swipe, later, "swipe")
    browser.run("document.getElementById('reset').click()")
    check(visible(browser) == whole, "reset does not show the whole after a pinch")
    check_tip(browser, tap, "a tap")


def check_without_script(browser, address):
    browser.call("Emulation.setScriptExecutionDisabled", value=True)
    browser.show(address)
    seen = browser.run("""({
        bars: [...document.querySelectorAll("svg.lanes rect")].filter((bar) =>
          bar.getBoundingClientRect().height > 0 && bar.querySelector("title").textContent).length,
        lines: document.querySelectorAll("polyline").length,
        axis: document.querySelector(".axis").innerText.includes("0 ms"),
        dead: document.getElementById("controls").getClientRects().length})""")
    check(seen["bars"] > 0 and seen["lines"] > 0 and seen["axis"], f"without the script it shows {seen}")
    check(seen["dead"] == 0, "there are buttons that do nothing without the script")


def check_quiet(browser, address):
    """Nothing went wrong in the page, and it asked for nothing but itself."""
    for event in browser.events:
        parameters = event.get("params", {})
        check(event.get("method") != "Runtime.exceptionThrown", f"JavaScript: {parameters}")
        check(not (event.get("method") == "Log.entryAdded" and parameters["entry"]["level"] == "error"),
              f"the browser complains: {parameters}")
        if event.get("method") == "Network.requestWillBeSent":
            asked = parameters["request"]["url"]
            check(asked == address, f"the page asks for {asked}")


def look(browser, address, pictures):
    browser.open_page(address)
    has_timeline = browser.run("document.querySelectorAll('svg.lanes rect').length > 0")
    for width_height in (DESKTOP, TABLET, PHONE, (320, 568)):
        check_fit(browser, width_height)
        check_names(browser, width_height)
    for scheme in ("dark", "light"):
        check_colours(browser, scheme)
    check_words(browser, has_timeline)
    sizes = (("phone", PHONE), ("tablet", TABLET), ("desktop", DESKTOP))
    for name, width_height in sizes if pictures else ():
        browser.size(width_height)
        browser.picture(Path(pictures) / f"{name}.png")
    browser.size(DESKTOP)
    if has_timeline:
        check_buttons_and_keys(browser)
        check_mouse(browser)
        check(check_marks(browser) > 1, "no step is marked")
        check_tip(browser, lambda x, y: browser.mouse("mouseMoved", x, y), "the mouse")
        browser.size(PHONE)
        check_touch(browser)
        check_fit(browser, PHONE)
    parts = browser.run("document.querySelectorAll('img, b:not(#exposed b), script').length")
    check(parts == 1, "text of the run became a part of the page")
    check_quiet(browser, address)
    if has_timeline:
        check_without_script(browser, address)


def start(folder):
    program = next((path for path in map(shutil.which, BROWSERS) if path), None)
    if program is None:
        raise NoBrowser(f"no browser on PATH: {', '.join(BROWSERS)}")
    browser = Browser(program, folder)
    try:
        browser.call("Browser.getVersion")
    except (OSError, EOFError) as error:
        said = browser.said()
        browser.close()
        raise NoBrowser(f"{program} does not start: {error}; {said}") from error
    return browser


def main(arguments):
    address = Path(arguments[1]).resolve().as_uri()
    with tempfile.TemporaryDirectory(prefix="muster-page-", ignore_cleanup_errors=True) as folder:
        try:
            browser = start(folder)
        except NoBrowser as reason:
            print(reason)
            return SKIPPED
        try:
            look(browser, address, arguments[2] if len(arguments) > 2 else None)
        except (AssertionError, RuntimeError, OSError, EOFError) as error:
            print(f"{arguments[1]}: {error}")
            return 1
        finally:
            browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
