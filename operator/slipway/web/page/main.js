// Which view is shown, and the polling that keeps it up to date while somebody may be looking.

import { say } from "./dom.js";
import { detail } from "./detail.js";
import { overview } from "./overview.js";
import { dropPlots } from "./plot.js";
import { clock } from "./words.js";

const PERIOD = 2000;
const LONGEST_WAIT = 30000;

const main = document.getElementById("main");
const state = document.getElementById("state");
let view = null, serial = 0, timer = 0, failures = 0, first = true;

function viewOf(hash) {
  const parts = hash.replace(/^#\/?/, "").split("/").filter(Boolean);
  try {
    return parts.length === 2 ? detail(...parts.map(decodeURIComponent)) : overview();
  } catch {
    return overview();
  }
}

function open() {
  // The skip link leads to an element, not to a view.
  if (location.hash === "#main") return;
  dropPlots();
  serial += 1;
  view = viewOf(location.hash);
  document.title = `${view.title} - Slipway`;
  main.replaceChildren(view.node);
  if (!first) main.focus();
  first = false;
  look();
}

async function look() {
  clearTimeout(timer);
  const mine = serial;
  let wait = PERIOD;
  try {
    const response = await fetch(view.path, { headers: { Accept: "application/json" } });
    const answer = await response.json();
    if (mine !== serial) return;
    if (response.ok) {
      view.update(answer);
      say(state, answer.leading ? "Live" : "Live, from a standby replica");
    } else {
      say(state, answer.error ?? `The operator answered ${response.status}`);
    }
    failures = 0;
  } catch (error) {
    if (mine !== serial) return;
    failures += 1;
    wait = Math.min(PERIOD * 2 ** failures, LONGEST_WAIT);
    say(state, `No answer since ${clock(Date.now() / 1000 - (failures - 1) * 2)}; what is shown is old`);
  }
  if (!document.hidden) timer = setTimeout(look, wait);
}

addEventListener("hashchange", open);
document.addEventListener("visibilitychange", () => { if (!document.hidden) look(); });
open();
