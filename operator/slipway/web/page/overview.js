// All ModelDeployments in a table; rows stay where they are while their cells change, so that focus is kept.

import { badge, el, say } from "./dom.js";

const HEAD = ["Name", "Phase", "Stable", "Candidate", "Weight", "Replicas", "Reason", "Next"];

export function overview() {
  const body = el("tbody");
  const count = el("p", { class: "quiet", role: "status" });
  const filter = el("input", { type: "search", id: "filter", autocomplete: "off", spellcheck: "false" });
  const table = el("table", { class: "wide" }, el("caption", {}, "ModelDeployments"),
    el("thead", {}, el("tr", {}, ...HEAD.map((text) => el("th", { scope: "col" }, text)))), body);
  const node = el("div", {}, el("h1", {}, "ModelDeployments"),
    el("p", { class: "tools" }, el("label", { for: "filter" }, "Filter "), filter), count,
    el("div", { class: "scroll", role: "region", "aria-label": "ModelDeployments", tabindex: "0" }, table));
  const rows = new Map();
  let items = [];

  function show() {
    const wanted = filter.value.trim().toLowerCase();
    const chosen = items.filter((item) =>
      `${item.namespace}/${item.name} ${item.phase} ${item.reason}`.toLowerCase().includes(wanted));
    say(count, `${chosen.length} of ${items.length}`);
    const kept = chosen.map((item) => {
      const key = `${item.namespace}/${item.name}`;
      if (!rows.has(key)) rows.set(key, row(item));
      rows.get(key).update(item);
      return rows.get(key).node;
    });
    const present = [...body.children];
    if (kept.length !== present.length || kept.some((each, place) => each !== present[place])) body.replaceChildren(...kept);
  }

  filter.addEventListener("input", show);
  return {
    node,
    path: "api/modeldeployments",
    title: "ModelDeployments",
    update(answer) {
      items = answer.items;
      const known = new Set(items.map((item) => `${item.namespace}/${item.name}`));
      for (const key of rows.keys()) if (!known.has(key)) rows.delete(key);
      show();
    },
  };
}

function row(item) {
  const place = `#/${encodeURIComponent(item.namespace)}/${encodeURIComponent(item.name)}`;
  const phase = el("td");
  const cells = HEAD.slice(2).map((label) => el("td", { "data-label": label }));
  const link = el("a", { href: place }, item.name);
  const node = el("tr", {}, el("th", { scope: "row" }, el("span", { class: "quiet" }, `${item.namespace}/`), link), phase, ...cells);
  return {
    node,
    update(next) {
      if (phase.textContent !== next.phase) phase.replaceChildren(badge(next.phase));
      const texts = [
        next.stable || "-", next.candidate || "-", next.candidate ? `${next.weight} %` : "-", String(next.replicas),
        next.reason || "-", next.next[0] ?? "",
      ];
      texts.forEach((text, column) => say(cells[column], text));
    },
  };
}
