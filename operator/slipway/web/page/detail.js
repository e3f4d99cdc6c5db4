// One ModelDeployment: where it stands, what comes next, and its rollout as pictures.

import { badge, el, say, table } from "./dom.js";
import { plot } from "./plot.js";
import { ago, clock, duration, milliseconds, moment, number, percent, power } from "./words.js";

const RANGES = [["everything", 0], ["last 5 minutes", 300], ["last 30 minutes", 1800], ["last 2 hours", 7200]];
const KEPT = 5000;

export function detail(namespace, name) {
  const phase = el("span"), reason = el("span", { class: "reason" }), message = el("p", { class: "message" });
  const next = el("ul", { class: "next" }), facts = el("p", { class: "quiet" }), since = el("p", { class: "quiet" });
  const range = el("select", { id: "range" }, ...RANGES.map(([text, seconds]) => el("option", { value: seconds }, text)));
  const versions = table("Versions", ["Version", "Role", "Weight", "Ready", "Requests/s", "p99", "Errors", "Note"]);
  const checks = table("Evidence", ["Check", "Verdict", "Reason", "Candidate", "Stable", "Numbers"]);
  const history = table("Past rollouts", ["Rollout", "Course", "Outcome", "Ended", "By", "Evidence"]);
  const scaling = table("Changes of replicas", ["When", "Version", "Replicas", "Reason", "Numbers"]);
  const plots = pictures();
  const node = el("div", {},
    el("h1", {}, el("span", { class: "quiet" }, `${namespace}/`), name),
    el("p", { class: "standing" }, phase, " ", reason), message, facts,
    el("h2", {}, "Next"), next,
    el("h2", {}, "Pictures"),
    el("p", { class: "tools" }, el("label", { for: "range" }, "Show "), range), since,
    el("div", { class: "plots" }, ...plots.map((each) => each.picture.node)),
    el("h2", {}, "Numbers"), versions.node, checks.node, history.node, scaling.node);
  let samples = [], uid = null, begun = null, answered = null;

  function draw() {
    const recent = Number(range.value);
    const to = samples.at(-1)?.at ?? answered.at;
    const from = Math.max(samples[0]?.at ?? to - 1, recent ? to - recent : 0);
    const shown = samples.filter((sample) => sample.at >= from);
    const looks = looksOf(samples);
    for (const each of plots) each.picture.show({ ...each.of(shown, looks, answered.bounds), from, to });
  }

  range.addEventListener("change", draw);
  return {
    node,
    title: `${name} in ${namespace}`,
    get path() {
      const place = `api/modeldeployments/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`;
      return samples.length ? `${place}?after=${samples.at(-1).at}` : place;
    },
    update(answer) {
      answered = answer;
      if (answer.uid !== uid || answer.recording.since !== begun) samples = [];
      [uid, begun] = [answer.uid, answer.recording.since];
      samples = samples.concat(answer.recording.samples).slice(-KEPT);
      if (phase.textContent !== answer.phase) phase.replaceChildren(badge(answer.phase));
      say(reason, answer.reason);
      say(message, answer.message);
      say(facts, factsOf(answer));
      if (next.textContent !== answer.next.join("")) next.replaceChildren(...answer.next.map((line) => el("li", {}, line)));
      say(since, begun === null ? "Nothing is recorded of it here: more objects are rolled out than there is room for."
        : `Recorded in memory since ${clock(begun)} (${duration(answer.at - begun)}); a restart of the operator begins anew.`);
      versions.fill(answer.versions.map(versionRow));
      checks.fill(answer.checks.map(checkRow));
      history.fill(answer.history.map((entry) => [entry.id, `${entry.from || "nothing"} to ${entry.to}`, entry.outcome,
        moment(entry.finishedAt), entry.by ?? "", entry.evidence ?? ""]));
      scaling.fill(answer.scaling.map((entry) => [moment(entry.at), entry.version,
        `${entry.from} to ${entry.to}`, entry.reason, entry.message ?? ""]));
      draw();
    },
  };
}

function factsOf(answer) {
  const rollout = answer.rollout;
  const serves = `Serves ${answer.stable || "nothing"} at ${answer.url || "no address yet"}.`;
  if (!rollout) return serves;
  const course = `Rollout ${rollout.id}: ${rollout.from || "nothing"} to ${rollout.to}`;
  if (rollout.stage === "Finished") return `${serves} ${course}: ${rollout.outcome ?? "ended"}.`;
  const step = rollout.steps ? `, step ${rollout.step} of ${rollout.steps}` : "";
  return `${serves} ${course}${step}, ${rollout.stage}, begun ${ago(rollout.startedAt, answer.at)}.`;
}

function versionRow(entry) {
  const { intended, applied, observed } = entry.weight;
  const weight = applied === intended ? `${intended} %` : `${intended} % (router: ${applied} %)`;
  return [entry.name, entry.role, observed === undefined ? weight : `${weight}, observed ${observed} %`,
    `${entry.readyReplicas}/${entry.replicas}`, entry.qps ?? "-", entry.latencyP99 || "-", entry.errorRate ?? "-",
    entry.reason ? `${entry.reason}: ${entry.message}` : ""];
}

function checkRow(check) {
  const counted = (counts) => `${counts.bad} bad of ${counts.requests}`;
  return [check.name, check.verdict, check.reason, counted(check.candidate), counted(check.stable), check.message];
}

/** Every revision and every check keeps its colour for as long as it is seen. */
function looksOf(samples) {
  const looks = new Map();
  for (const sample of samples) {
    for (const key of Object.keys(sample.versions)) if (!looks.has(key)) looks.set(key, looks.size % 6);
  }
  const names = new Set(samples.flatMap((sample) => Object.keys(sample.checks)));
  [...names].forEach((name, place) => looks.set(`check ${name}`, place % 6));
  return looks;
}

function pictures() {
  const ofVersions = (...parts) => (samples, looks) => ({ lines: versionLines(samples, looks, parts), bounds: [] });
  const ofChecks = (part, word) => (samples, looks, bounds) => {
    const lines = checkLines(samples, looks, part);
    return { lines, bounds: lines.length && bounds[part] !== undefined ? [{ name: word, value: bounds[part] }] : [] };
  };
  return [
    { picture: plot("Weights", percent, { low: 0, high: 100 }),
      of: ofVersions(["intended", "intended", true, true], ["observed", "observed", false, false]) },
    { picture: plot("p99", milliseconds, { least: 0.01 }), of: ofVersions(["p99", "", false, false]) },
    { picture: plot("Error ratio", (value) => percent(100 * value), { least: 0.01 }), of: ofVersions(["errors", "", false, false]) },
    { picture: plot("Requests per second", number, { least: 1 }), of: ofVersions(["qps", "", false, false]) },
    { picture: plot("Evidence of harm", power, { least: 1 }), of: ofChecks("harm", "harm is found") },
    { picture: plot("Evidence of safety", power, { least: 1 }), of: ofChecks("safe", "safety is found") },
    { picture: plot("Replicas", number, { low: 0, least: 2 }),
      of: ofVersions(["replicas", "wanted", true, true], ["ready", "ready", false, true]) },
  ];
}

function versionLines(samples, looks, parts) {
  const revisions = new Map();
  for (const sample of samples) for (const [key, point] of Object.entries(sample.versions)) revisions.set(key, point.version);
  const twice = new Set([...revisions.values()].filter((name, place, all) => all.indexOf(name) !== place));
  return [...revisions].flatMap(([key, version]) => parts.map(([field, word, dashed, steps]) => ({
    name: `${twice.has(version) ? key : version}${word ? ` ${word}` : ""}`, look: looks.get(key), dashed, steps,
    points: samples.map((sample) => [sample.at, sample.versions[key]?.[field] ?? null]),
  })));
}

function checkLines(samples, looks, part) {
  const names = new Set(samples.flatMap((sample) => Object.keys(sample.checks)));
  return [...names].map((name) => ({
    name, look: looks.get(`check ${name}`), dashed: false, steps: true,
    points: samples.map((sample) => [sample.at, sample.checks[name]?.[part] ?? null]),
  })).filter((line) => line.points.some(([, value]) => value !== null));
}
