// Numbers and times as people read them.

export function duration(seconds) {
  const whole = Math.max(0, Math.round(seconds));
  const parts = [[Math.floor(whole / 3600), "h"], [Math.floor(whole / 60) % 60, "m"], [whole % 60, "s"]];
  return parts.filter(([count]) => count).map(([count, unit]) => `${count}${unit}`).join("") || "0s";
}

export function clock(seconds) {
  return new Date(seconds * 1000).toLocaleTimeString([], { hourCycle: "h23" });
}

export function moment(text) {
  const at = new Date(text);
  return Number.isNaN(at.valueOf()) ? "" : at.toLocaleString([], { dateStyle: "short", timeStyle: "medium", hourCycle: "h23" });
}

/** A number from its decimal logarithm. */
export function power(logarithm) {
  return Math.abs(logarithm) > 4 ? `10^${Math.round(logarithm)}` : number(10 ** logarithm);
}

export function ago(text, now) {
  const at = Date.parse(text) / 1000;
  return Number.isFinite(at) ? `${duration(now - at)} ago` : "";
}

export function percent(value) {
  return `${number(value)} %`;
}

export function milliseconds(value) {
  return value < 1 ? `${number(1000 * value)} ms` : `${number(value)} s`;
}

export function number(value) {
  return String(Number(value.toPrecision(3)));
}
