// The view Overview: what is wrong right now, what runs, and the last five minutes.
import { chart } from "../chart.js";
import { h, put } from "../dom.js";
import { get, on } from "../link.js";
import { named } from "../names.js";
import { bytes, day, ms, number, pill } from "../text.js";

const ROLES = [["executor", "Served here"], ["caller", "Made by the agent"]];
const SAMPLES = 300;

export function overview(place) {
  let samples = [];
  const advice = h("section", { "aria-label": "What is wrong" });
  const calls = h("div.cards");
  const parts = h("ul.notes");
  const limits = h("div.cards");
  const links = h("p.faint");
  put(place, h("h2", "What is wrong right now"), advice, h("h2", "Calls, the last five minutes"), calls,
    h("h2", "Parts"), parts, h("h2", "Limits, the fullest first"), limits, links);

  const show = (now) => {
    if (!now.reachable) {
      put(advice, note("bad", now.detail ?? "Nothing was read yet.", "Check that the sidecar runs; the page goes on by itself."));
      return;
    }
    put(advice, now.advice.length === 0 ? h("p", pill("all is well", "good"), " Nothing needs your attention.")
      : h("ul.notes", { id: "advice" }, now.advice.map((item) => note(item.severity, named(item.what), named(item.do)))));
    put(calls, ROLES.map(([role, title]) => card(role, title, now.load.roles[role] ?? {}, samples)));
    put(parts, now.status.parts.map((part) =>
      h(`li.${{ ok: "good", degraded: "odd", failed: "bad" }[part.state]}`, h("b", part.name), ` ${part.state}: `, h("span.then", part.detail))));
    put(limits, now.load.limits.filter((limit) => limit.share !== null).slice(0, 9).map(gauge));
    const open = Object.entries(now.load.links).map(([kind, count]) => `${count} ${kind}`).join(", ") || "none";
    put(links, `Links: ${open}. In ${bytes(now.load.received_rate)}/s, out ${bytes(now.load.sent_rate)}/s, queued `,
      `${bytes(now.load.queue_bytes)}. Started ${day(now.load.started_at * 1000)}.`);
  };

  get("/data/overview").then((told) => { samples = told.samples; if (told.now) show(told.now); }, () => {});
  return on("overview", (now) => {
    if (now.reachable && samples.at(-1)?.at_ms !== now.at_ms) {
      samples = [...samples, { at_ms: now.at_ms, ...now.load.roles }].slice(-SAMPLES);
    }
    show(now);
  });
}

function note(severity, what, then) {
  return h(`li.${severity === "bad" ? "bad" : "odd"}`, h("b", what), h("br"), h("span.then", then));
}

function card(role, title, now, samples) {
  const line = (pick) => samples.map((sample) => pick(sample[role] ?? {}) ?? null);
  const rates = now.rates ?? {};
  const said = ["success", "error", "refused"].map((name) => `${name} ${number(rates[name] ?? 0)}/s`).join(", ");
  return [
    h("section.card", { "aria-label": `${title}: calls per second` }, h("h3", `${title}: calls per second`),
      h("div.big", { "data-rate": role }, number(now.rate ?? 0)),
      chart(said, ["success", "error", "refused"].map((name) => line((sample) => sample.rates?.[name]))),
      h("p.faint", said)),
    h("section.card", { "aria-label": `${title}: latency` }, h("h3", `${title}: latency`),
      h("div.big", `${ms(now.p50_ms)} / ${ms(now.p99_ms)}`),
      chart(`median ${ms(now.p50_ms)}, 99th percentile ${ms(now.p99_ms)}`, [line((sample) => sample.p50_ms), line((sample) => sample.p99_ms)]),
      h("p.faint", "median, and 99th percentile (dashed)")),
    h("section.card", { "aria-label": `${title}: in flight` }, h("h3", `${title}: in flight`),
      h("div.big", { "data-flight": role }, number(now.in_flight ?? 0)),
      chart(`in flight ${now.in_flight ?? 0}`, [line((sample) => sample.in_flight)]),
      h("p.faint", "calls that have no result yet")),
  ];
}

function gauge(limit) {
  const kind = limit.share >= 0.9 ? "bad" : limit.share >= 0.8 ? "odd" : "";
  return h("div.card.bar", h("span.mono.wrap", limit.key),
    h("meter", { min: 0, max: 1, high: 0.8, value: limit.share, "aria-label": `${limit.key}: ${number(limit.level)} of ${number(limit.max)}` }),
    h("span", `${number(limit.level)} of ${number(limit.max)} `, kind && pill(`${Math.round(limit.share * 100)} %`, kind),
      limit.refused > 0 && h("span.faint", ` · refused ${number(limit.refused)}`)));
}
