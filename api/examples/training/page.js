"use strict";
(() => {
  const id = (name) => document.getElementById(name);
  const timeline = id("timeline");
  const span = Number(timeline.dataset.span);  // microseconds, as all times here
  if (!(span > 0)) return;
  const least = Math.min(span, 5);
  const pictures = [...timeline.querySelectorAll("svg.lanes")];
  const axis = timeline.querySelector(".axis");
  const tip = id("tip");
  const view = {begin: 0, length: span};

  // The browser shows titles late and on no touch screen; here the tip takes their place.
  const bars = pictures.flatMap((picture) => [...picture.querySelectorAll("rect")].map((rect) => {
    const title = rect.querySelector("title");
    title.remove();
    const number = (name) => Number(rect.getAttribute(name));
    const [x, width, y, height] = ["x", "width", "y", "height"].map(number);
    return {rect, picture, x, width, y, height, text: title.textContent};
  }));
  let chosen = null;

  const choose = (bar, clientX) => {
    if (chosen) chosen.rect.classList.remove("chosen");
    chosen = bar;
    tip.hidden = !bar;
    if (!bar) return;
    bar.rect.classList.add("chosen");
    tip.textContent = bar.text;
    tip.style.left = "0";  // at the right edge it would be measured as narrow as the rest there
    const box = bar.rect.getBoundingClientRect();
    const width = document.documentElement.clientWidth;
    const left = (clientX ?? Math.max(box.left, 0)) - tip.offsetWidth / 2;
    const above = box.top - tip.offsetHeight - 8;
    tip.style.left = `${Math.max(4, Math.min(left, width - tip.offsetWidth - 4))}px`;
    tip.style.top = `${above > 4 ? above : box.bottom + 8}px`;
  };

  const drawTicks = () => {
    const width = axis.clientWidth;
    const raw = view.length * 80 / width;  // eighty pixels from one to the next, or a little more
    const power = 10 ** Math.floor(Math.log10(raw));
    const step = power * [1, 2, 5, 10].find((factor) => factor * power >= raw);
    const digits = Math.max(0, -Math.floor(Math.log10(step / 1000) + 1e-9));
    const ticks = [];
    const end = view.begin + view.length;
    for (let i = Math.ceil(view.begin / step); i * step <= end; ++i) ticks.push(i * step);
    axis.replaceChildren(...ticks.flatMap((time) => {
      const x = (time - view.begin) / view.length * width;
      if (x > width - 75) return [];  // no room for the text
      const label = document.createElement("span");
      label.style.left = `${x}px`;
      label.textContent = `${(time / 1000).toFixed(digits)} ms`;
      return [label];
    }));
    const lines = ticks.map((time) => `M${time} 0V1000`).join("");
    for (const picture of pictures) picture.querySelector(".grid").setAttribute("d", lines);
    const text = (time) => (time / 1000).toFixed(Math.max(digits, 1));
    id("range").textContent = `${text(view.begin)} to ${text(end)} of ${text(span)} ms`;
  };

  // The step in which the picture begins has its name at the left edge. A name that has no room is left out.
  const placeMarks = () => {
    for (const row of timeline.querySelectorAll(".marks")) {
      let [room, end] = [row.clientWidth, span];
      for (const name of [...row.children].reverse()) {
        const at = Number(name.dataset.at);
        name.hidden = false;
        name.style.left = `${100 * Math.max(0, (at - view.begin) / view.length)}%`;
        const outside = end <= view.begin || at >= view.begin + view.length;
        name.hidden = outside || name.offsetLeft + name.offsetWidth > room;
        if (!name.hidden) room = name.offsetLeft;
        end = at;
      }
    }
  };

  const show = (begin, length) => {
    view.length = Math.max(least, Math.min(length, span));
    view.begin = Math.max(0, Math.min(begin, span - view.length));
    choose(null);
    for (const picture of pictures) {
      const height = picture.viewBox.baseVal.height;
      picture.setAttribute("viewBox", `${view.begin} 0 ${view.length} ${height}`);
    }
    const useless = {in: view.length <= least, out: view.length >= span, reset: view.length >= span,
      earlier: view.begin <= 0, later: view.begin + view.length >= span};
    for (const name in useless) id(name).setAttribute("aria-disabled", useless[name]);
    drawTicks();
    placeMarks();
  };
  const part = (clientX) => {
    const box = pictures[0].getBoundingClientRect();
    return (clientX - box.left) / box.width;
  };
  // What is at `where` of the width, 0 to 1, stays there.
  const zoom = (factor, where = .5) => {
    const length = Math.max(least, Math.min(view.length * factor, span));
    show(view.begin + (view.length - length) * where, length);
  };
  const move = (widths) => show(view.begin + view.length * widths, view.length);
  const reset = () => show(0, span);

  const nearest = (picture, event, reach) => {
    const box = picture.getBoundingClientRect();
    const time = view.begin + part(event.clientX) * view.length;
    const y = event.clientY - box.top;
    let best = null;
    let distance = reach * view.length / box.width;
    for (const bar of bars) {
      if (bar.picture !== picture || y < bar.y || y > bar.y + bar.height) continue;
      const away = Math.max(0, bar.x - time, time - bar.x - bar.width);
      if (away < distance) [best, distance] = [bar, away];
    }
    return best;
  };

  const pointers = new Map();  // where each one that is down was last
  let moved = false;
  const spread = () => {
    const x = [...pointers.values()];
    return {middle: (x[0] + x[x.length - 1]) / 2, width: Math.abs(x[0] - x[x.length - 1])};
  };
  const down = (event) => {
    if (event.button !== 0) return;
    moved = moved && pointers.size > 0;
    pointers.set(event.pointerId, event.clientX);
    event.currentTarget.setPointerCapture(event.pointerId);
  };
  const drag = (event) => {
    const picture = event.currentTarget;
    if (!pointers.has(event.pointerId)) {
      if (event.pointerType === "mouse") choose(nearest(picture, event, 4), event.clientX);
      return;
    }
    if (!moved && Math.abs(event.clientX - pointers.get(event.pointerId)) < 4) return;
    moved = true;
    picture.classList.add("dragged");
    const before = spread();
    pointers.set(event.pointerId, event.clientX);
    const after = spread();
    move(part(before.middle) - part(after.middle));
    if (before.width > 0 && after.width > 0) zoom(before.width / after.width, part(after.middle));
  };
  const up = (event) => {
    if (!pointers.delete(event.pointerId)) return;
    event.currentTarget.classList.remove("dragged");
    if (event.type === "pointerup" && !moved && pointers.size === 0)
      choose(nearest(event.currentTarget, event, 16), event.clientX);
  };
  const wheel = (event) => {
    const sideways = event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY);
    const delta = (sideways && event.deltaX || event.deltaY) * (event.deltaMode === 1 ? 16 : 1);
    if (view.length >= span && (sideways || delta > 0)) return;  // nothing to do here: the page scrolls
    event.preventDefault();
    if (sideways) move(delta / 500);
    else zoom(2 ** (Math.max(-200, Math.min(delta, 200)) / 200), part(event.clientX));
  };

  const go = (bar) => {
    if (!bar) return;
    if (bar.x < view.begin || bar.x > view.begin + view.length)
      show(bar.x + bar.width / 2 - view.length / 2, view.length);
    bar.picture.scrollIntoView({block: "nearest"});
    choose(bar);
  };
  const sameLane = (a, b) => a.picture === b.picture && a.y === b.y;
  const neighbour = (step) => {
    if (!chosen) return bars.find((bar) => bar.x + bar.width >= view.begin);
    const bar = bars[bars.indexOf(chosen) + step];
    return bar && sameLane(bar, chosen) ? bar : chosen;
  };
  const nextLane = () => {
    const from = chosen ? bars.indexOf(chosen) : -1;
    const head = bars.find((bar, i) => i > from && !(chosen && sameLane(bar, chosen))) ?? bars[0];
    return bars.find((bar) => sameLane(bar, head) && bar.x + bar.width >= view.begin) ?? head;
  };
  const keys = {
    "+": () => zoom(.5), "=": () => zoom(.5), "-": () => zoom(2), "0": reset, "Home": reset,
    "ArrowLeft": () => move(-.2), "ArrowRight": () => move(.2), "Escape": () => choose(null),
    "n": () => go(neighbour(1)), "p": () => go(neighbour(-1)), "l": () => go(nextLane()),
  };
  timeline.addEventListener("keydown", (event) => {
    const act = keys[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (!act || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    act();
  });
  for (const picture of pictures) {
    picture.addEventListener("pointerdown", down);
    picture.addEventListener("pointermove", drag);
    picture.addEventListener("pointerup", up);
    picture.addEventListener("pointercancel", up);
    picture.addEventListener("pointerleave", (event) => {
      if (event.pointerType === "mouse" && pointers.size === 0) choose(null);
    });
    picture.addEventListener("wheel", wheel, {passive: false});
  }
  id("in").addEventListener("click", () => zoom(.5));
  id("out").addEventListener("click", () => zoom(2));
  id("earlier").addEventListener("click", () => move(-.5));
  id("later").addEventListener("click", () => move(.5));
  id("reset").addEventListener("click", reset);
  window.addEventListener("resize", () => { drawTicks(); placeMarks(); });
  window.addEventListener("scroll", () => choose(chosen), {passive: true});
  timeline.tabIndex = 0;
  timeline.setAttribute("role", "group");
  timeline.setAttribute("aria-label", "lanes over time");
  timeline.setAttribute("aria-describedby", "keys");
  id("controls").hidden = id("keys").hidden = false;
  reset();
})();
