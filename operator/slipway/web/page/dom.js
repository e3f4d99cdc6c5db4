// Elements are made of text only: nothing that comes from the cluster is ever read as markup.

const SVG = "http://www.w3.org/2000/svg";

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

export function el(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

/** Set a node's text where it differs, so that selections and screen readers are left in peace. */
export function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** A table with a caption; `fill` takes rows of texts or nodes. */
export function table(caption, head) {
  const body = el("tbody");
  const heads = head.map((text) => el("th", { scope: "col" }, text));
  const node = el("div", { class: "scroll", role: "region", "aria-label": caption, tabindex: "0" },
    el("table", {}, el("caption", {}, caption), el("thead", {}, el("tr", {}, ...heads)), body));
  let shown = "";
  return {
    node,
    body,
    fill(rows) {
      const now = JSON.stringify(rows);
      node.hidden = rows.length === 0;
      if (now === shown) return;
      shown = now;
      body.replaceChildren(...rows.map((row) => el("tr", {}, ...row.map((text, column) =>
        column === 0 ? el("th", { scope: "row" }, text) : el("td", {}, text)))));
    },
  };
}

export function badge(phase) {
  return el("span", { class: "badge", "data-phase": phase }, phase || "unknown");
}
