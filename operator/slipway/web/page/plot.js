// Lines over time as SVG. All plots share one cursor: by pointer, or by arrow keys on a focused plot.

import { el, say, svg } from "./dom.js";
import { clock } from "./words.js";

const HEIGHT = 170;
const LEFT = 56, RIGHT = 12, TOP = 10, BOTTOM = 24;

let cursor = null;
const plots = new Set();

function moveCursor(at) {
  cursor = at;
  for (const plot of plots) plot.draw();
}

/** Forget the plots of a view that is left. */
export function dropPlots() {
  plots.clear();
  cursor = null;
}

function ticks(low, high) {
  const raw = (high - low) / 3;
  const size = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((factor) => factor * size).find((each) => each >= raw);
  const found = [];
  for (let value = Math.ceil(low / step) * step; value <= high + step * 1e-6; value += step) {
    found.push(Math.abs(value) < step * 1e-6 ? 0 : value);
  }
  return found;
}

/** Values of a line as pieces of path: gaps stay gaps, weights and replicas go in steps. */
function pathOf(points, x, y, steps) {
  let text = "", pen = false, last = null;
  for (const [at, value] of points) {
    if (value === null || value === undefined) {
      pen = false;
      continue;
    }
    const place = `${x(at).toFixed(1)} ${y(value).toFixed(1)}`;
    if (!pen) text += `M${place}`;
    else if (steps) text += `L${x(at).toFixed(1)} ${y(last).toFixed(1)}L${place}`;
    else text += `L${place}`;
    pen = true;
    last = value;
  }
  return text;
}

function extent(lines, bounds, fixed) {
  const values = lines.flatMap((line) => line.points.map(([, value]) => value)).filter((value) => Number.isFinite(value));
  const all = values.concat(bounds.map((bound) => bound.value));
  let low = fixed?.low ?? Math.min(0, ...all), high = fixed?.high ?? Math.max(...all, low + (fixed?.least ?? 1e-3));
  if (fixed?.high === undefined) high += (high - low) * 0.05;
  return [low, high];
}

function valueAt(points, at) {
  let found = null;
  for (const [when, value] of points) {
    if (when > at) break;
    found = value;
  }
  return found;
}

/**
 * One picture. `draw({lines, bounds, from, to})`: a line is {name, look, dashed, steps, points: [[seconds, value]]},
 * a bound {name, value} is a threshold. `fixed` may give low, high, or the least height of the scale.
 */
export function plot(title, format, fixed) {
  const picture = svg("svg", { role: "img", tabindex: "0", height: HEIGHT });
  const legend = el("ul", { class: "legend" });
  const when = el("span", { class: "when" });
  const node = el("figure", { "data-plot": title }, el("figcaption", {}, el("strong", {}, title), " ", when), picture, legend);
  let data = null;

  function times() {
    const found = new Set();
    for (const line of data.lines) for (const [at, value] of line.points) if (value !== null) found.add(at);
    return [...found].sort((left, right) => left - right);
  }

  function draw() {
    if (data === null) return;
    const { lines, bounds, from, to } = data;
    const width = Math.max(240, node.clientWidth || 600);
    const [low, high] = extent(lines, bounds, fixed);
    const x = (at) => LEFT + ((at - from) / Math.max(to - from, 1)) * (width - LEFT - RIGHT);
    const y = (value) => TOP + (1 - (value - low) / (high - low)) * (HEIGHT - TOP - BOTTOM);
    picture.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    picture.dataset.low = low;
    picture.dataset.high = high;
    picture.replaceChildren(...grid(low, high, from, to, width, x, y), ...bounds.map((bound) => boundOf(bound, width, y)),
      ...lines.map((line) => svg("path", {
        d: pathOf(line.points, x, y, line.steps), class: `line look${line.look}${line.dashed ? " dashed" : ""}`,
        "data-name": line.name,
      })));
    const at = cursor !== null && cursor >= from && cursor <= to ? cursor : to;
    if (at === cursor) picture.append(svg("line", { class: "cursor", x1: x(at), x2: x(at), y1: TOP, y2: HEIGHT - BOTTOM }));
    say(when, at === cursor ? `at ${clock(at)}` : "");
    describe(at);
  }

  function grid(low, high, from, to, width, x, y) {
    const drawn = ticks(low, high).flatMap((value) => [
      svg("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: y(value), y2: y(value) }),
      svg("text", { class: "tick", x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, format(value)),
    ]);
    for (const [at, anchor] of [[from, "start"], [to, "end"]]) {
      drawn.push(svg("text", { class: "tick", x: x(at), y: HEIGHT - 6, "text-anchor": anchor }, clock(at)));
    }
    return drawn;
  }

  function boundOf(bound, width, y) {
    return svg("g", { class: "bound", "data-bound": bound.name, "data-value": bound.value },
      svg("line", { x1: LEFT, x2: width - RIGHT, y1: y(bound.value), y2: y(bound.value) }),
      svg("text", { class: "tick", x: width - RIGHT, y: y(bound.value) - 4, "text-anchor": "end" }, bound.name));
  }

  function describe(at) {
    const texts = data.lines.map((line) => {
      const value = valueAt(line.points, at);
      return `${line.name} ${value === null || value === undefined ? "unknown" : format(value)}`;
    });
    const keys = data.lines.map((line, place) => el("li", { class: `look${line.look}` },
      svg("svg", { width: 18, height: 8, "aria-hidden": "true" },
        svg("path", { d: "M0 4H18", class: `line look${line.look}${line.dashed ? " dashed" : ""}` })), ` ${texts[place]}`));
    legend.replaceChildren(...keys);
    picture.setAttribute("aria-label", `${title}: ${texts.join(", ") || "nothing recorded yet"}`);
  }

  picture.addEventListener("pointermove", (event) => {
    const box = picture.getBoundingClientRect();
    const share = (event.clientX - box.left - LEFT) / Math.max(box.width - LEFT - RIGHT, 1);
    if (data !== null) moveCursor(data.from + Math.min(Math.max(share, 0), 1) * (data.to - data.from));
  });
  picture.addEventListener("pointerleave", () => moveCursor(null));
  picture.addEventListener("keydown", (event) => {
    const all = data === null ? [] : times();
    if (!["ArrowLeft", "ArrowRight", "Escape"].includes(event.key) || all.length === 0) return;
    event.preventDefault();
    if (event.key === "Escape") return moveCursor(null);
    const present = cursor === null ? all.length - 1 : all.findLastIndex((at) => at <= cursor);
    const next = present + (event.key === "ArrowRight" ? 1 : -1);
    moveCursor(all[Math.min(Math.max(next, 0), all.length - 1)]);
  });

  const one = { node, draw, show(next) { data = next; draw(); } };
  plots.add(one);
  return one;
}

addEventListener("resize", () => { for (const plot of plots) plot.draw(); });
