// The page of a sidecar in a real headless Chromium: each view and action, by mouse and by keys alone; its accessibility; its
// speed with ten thousand calls; attacks on it. Takes the pictures that the documentation shows.
//
// Usage: node page.mjs CAPD FOLDER [PICTURES]
import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import { chromium } from "playwright-core";
import { attacks } from "./attacks.mjs";
import { HOSTILE, page as open, STUCK, until, world } from "./world.mjs";

const [capd, folder, pictures] = process.argv.slice(2);
const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const CALLS = 10000;
const VIEWS = ["overview", "calls", "capabilities", "contracts", "peers", "policy", "audit", "configuration"];
const PICTURED = [...VIEWS, "capability", "call", "timeline"];
let began = Date.now();
function done(what) {
  console.log(`${((Date.now() - began) / 1000).toFixed(1).padStart(6)} s  ${what}`);
  began = Date.now();
}

const { a, b, held, main, other, lint, stuck } = await world(capd, folder);
const server = await open(capd, a.file);
const { origin: base, hash } = new URL(server.url);
const token = new URLSearchParams(hash.slice(1)).get("token");
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync", "--force-color-profile=srgb"],
});
done("two sidecars, their agents, the page and Chromium");

try {
  await attacks(base, token);
  done("attacks without a browser");
  const context = await window_(1280, 800, "light");
  const tab = await context.newPage();
  const faults = watched(tab);
  await tab.goto(`${base}/`);
  await tab.getByText("no session", { exact: true }).waitFor();
  assert.match(await tab.locator("main").innerText(), /capd page/);
  await tab.goto(server.url);
  await tab.locator("#state.good").waitFor();
  assert.doesNotMatch(tab.url(), /token/);
  assert.equal(await tab.evaluate(() => document.cookie), "", "scripts cannot read the cookie");
  faults.length = 0;

  await calls(tab);
  await views(tab);
  await tryIt(tab);
  await watchedCall(tab);
  await triedAgain(tab);
  await keyboard(tab);
  await sites(context, tab);
  // What the browser logs of the three mistakes above: a caller that is no DID, a wrong file, a level that is none.
  const refused = [400, 422, 400].map((status) => new RegExp(`^console: Failed to load resource: .* ${status} `));
  assert.ok(faults.length === refused.length && refused.every((one, index) => one.test(faults[index])),
    `something else is logged as an error, or leaves the host: ${faults.join("\n")}`);
  await context.close();
  await looks();
  await drained();
  await restart();
} finally {
  await browser.close();
  await server.stop();
  await a.stop();
  await b.stop();
}

async function window_(width, height, colorScheme, options = {}) {
  return browser.newContext({ viewport: { width, height }, colorScheme, reducedMotion: "reduce", permissions: ["clipboard-read", "clipboard-write"], ...options });
}

/** What goes wrong in a tab, and what it asks of others. */
function watched(tab) {
  const faults = [];
  tab.on("pageerror", (error) => faults.push(`error: ${error.message}`));
  tab.on("console", (message) => { if (message.type() === "error") faults.push(`console: ${message.text()}`); });
  tab.on("request", (request) => {
    const url = new URL(request.url());
    if (url.origin !== base && url.protocol !== "blob:") faults.push(`asks ${request.url()}`);
  });
  return faults;
}

async function show(tab, view) {
  await tab.goto(`${base}/#/${view}`);
  await tab.locator("main h1").waitFor();
  await tab.waitForFunction(() => document.querySelectorAll("[aria-busy=true]").length === 0);
}

function said(tab) {
  return tab.locator("#said");
}

/** Ten thousand calls, on the list, filtered and scrolled. */
async function calls(tab) {
  const made = await Promise.all(Array.from({ length: 32 }, async (_, worker) => {
    for (let index = worker; index < CALLS; index += 32) {
      const { status } = await a.ask("POST", "/v1/call/com.acme.echo", { index });
      assert.equal(status, 200);
    }
  }));
  assert.equal(made.length, 32);
  done(`${CALLS} calls`);
  await b.ask("POST", `/v1/call/com.acme.shout?to=${main}&timeout=5s`, { text: "by a peer" });
  await b.capctl("query", "com.acme.secret", "--to", main);
  await a.ask("POST", "/v1/call/org.example.lint", { path: "a.rs" });
  const drifted = await a.ask("POST", "/v1/call/org.example.moved?timeout=5s", { path: "a.rs" });
  assert.equal(drifted.json.code, 4902, JSON.stringify(drifted.json));

  await show(tab, "calls");
  const rows = tab.locator(".list .line");
  await rows.first().waitFor();
  const meter = await tab.context().newCDPSession(tab);
  await meter.send("Performance.enable", { timeDomain: "threadTicks" });
  const work = async () => (await meter.send("Performance.getMetrics")).metrics.find((one) => one.name === "TaskDuration").value * 1000;
  // As fast as a wheel goes, then in leaps to the last call; what is seen is always there.
  const scroll = async (step, wanted, framesMax) => {
    const before = await work();
    const scrolled = await tab.evaluate(async ([step, wanted, framesMax]) => {
      const scroller = document.querySelector(".list .rows");
      let frames = 0;
      let most = 0;
      const end = performance.now() + 40000;
      for (;;) {
        scroller.scrollTop += step;
        await new Promise(requestAnimationFrame);
        frames += 1;
        most = Math.max(most, document.querySelectorAll(".list .line").length);
        const isEnd = scroller.scrollTop + scroller.clientHeight >= scroller.scrollHeight - 1;
        if (frames === framesMax || (isEnd && scroller.scrollHeight / 36 >= wanted)) break;
        if (performance.now() > end) throw new Error(`only ${scroller.scrollHeight / 36} rows`);
      }
      await new Promise(requestAnimationFrame);
      const box = scroller.getBoundingClientRect();
      const seen = [...document.querySelectorAll(".list .line")].filter((line) => {
        const { top, bottom } = line.getBoundingClientRect();
        return bottom > box.top && top < box.bottom;
      });
      return { frames, most, seen: seen.length, wanted: Math.floor(box.height / 36) };
    }, [step, wanted, framesMax]);
    return { ...scrolled, each: ((await work()) - before) / scrolled.frames };
  };
  const wheel = await scroll(240, CALLS, 200);
  const leaps = await scroll(2400, CALLS, -1);
  for (const { most, seen, wanted } of [wheel, leaps]) {
    assert.ok(most < 120, `${most} rows in the document at once`);
    assert.ok(seen >= wanted, `${seen} of ${wanted} rows are drawn where it was scrolled to`);
  }
  // Of the processor, whatever else this machine does meanwhile: 60 frames a second leave 16 ms for each.
  assert.ok(wheel.each < 16, `a frame takes ${wheel.each.toFixed(1)} ms of the processor`);
  console.log(`          a frame of the wheel takes ${wheel.each.toFixed(1)} ms of the processor, one of a leap ${leaps.each.toFixed(1)} ms`);
  done(`${CALLS} calls scrolled`);

  const count = async () => Number((await tab.locator("#count").innerText()).replaceAll(",", "").match(/^\d+/)?.[0] ?? "NaN");
  const filter = async (label, value, holds) => {
    const field = tab.getByLabel(label, { exact: true });
    if (await field.evaluate((element) => element.tagName === "SELECT")) await field.selectOption(value);
    else { await field.fill(value); await field.press("Enter"); }
    await until(`the filter ${label} ${value}`, async () => holds(await count()));
  };
  await filter("Role", "served", (found) => found > 100);
  await filter("Role", "made", (found) => found > 100);
  await filter("Capability", "org.example.lint", (found) => found === 1);
  await filter("Peer", other.slice(-8), (found) => found === 1);
  assert.match(await tab.locator(".list .line").first().innerText(), /linter/, "a peer is told by its name");
  await filter("Peer", "nobody", (found) => found === 0);
  await filter("Peer", "linter", (found) => found === 1);
  await filter("Peer", "", (found) => found === 1);
  await filter("Capability", "", (found) => found > 100);
  await filter("Outcome", "success", (found) => found > 100);
  await filter("Outcome", "failed", (found) => found === 0);
  await filter("Outcome", "running", (found) => found === 0);
  await filter("Outcome", "", (found) => found > 100);
  await filter("Age", "1m", (found) => found > 0);
  await filter("Age", "", (found) => found > 100);
  assert.match(tab.url(), /role=made/);
  await tab.reload();
  await tab.locator(".list .line").first().waitFor();
  assert.equal(await tab.getByLabel("Role", { exact: true }).inputValue(), "made", "a reload keeps the session and the filter");
  done("each filter of the calls");
}

/** Each of the other views has what it is to show, and what can be asked there is answered. */
async function views(tab) {
  await show(tab, "overview");
  await tab.locator("#advice").waitFor();
  assert.match(await tab.locator("#advice").innerText(), /z6MkhaXgBZ\S+ (cannot be reached|has not connected)/);
  assert.match(await tab.locator("main").innerText(), /journal ok/);
  assert.equal(await tab.locator("svg.chart").count(), 6);

  await show(tab, "capabilities");
  await tab.getByRole("link", { name: "com.acme.shout:2.0.0" }).waitFor();
  await tab.getByLabel("Find", { exact: true }).fill("lint");
  await tab.getByLabel("Find", { exact: true }).press("Enter");
  await until("the search", async () => (await tab.locator("#count").innerText()) === "1 capabilities");
  await show(tab, `capabilities/${encodeURIComponent("com.acme.hostile:1.0.0")}`);
  assert.ok((await tab.locator("main").innerText()).includes(HOSTILE), "markup is shown as the text that it is");
  assert.equal(await tab.locator("main img, main script, main b:has-text('name')").count(), 0);
  assert.match(await tab.title(), /capd/);

  await show(tab, "contracts/com.acme.shout");
  await tab.getByRole("button", { name: "a caller of 1.0.0 with a provider of 2.0.0: breaks" }).click();
  const difference = tab.locator("#difference");
  await difference.waitFor();
  assert.match(await difference.innerText(), /required/);
  assert.ok((await difference.locator("pre").count()) > 0, "the witness is shown");
  await tab.getByLabel("Capability", { exact: true }).fill("org.example.lint");
  await tab.getByLabel("Capability", { exact: true }).press("Enter");
  await tab.getByRole("button", { name: /2\.0\.0: fits/ }).waitFor();
  const contracts = await tab.locator("main").innerText();
  assert.match(contracts, /org\.example\.lint[\s\S]*proven/);
  assert.match(contracts, /org\.example\.moved[\s\S]*refused/);
  assert.match(contracts, /4902/);

  await show(tab, "peers");
  await tab.getByText("connected", { exact: true }).waitFor();
  assert.match(await tab.locator("main").innerText(), /unreachable|waiting/);
  await tab.locator("summary", { hasText: other }).waitFor();
  await tab.getByRole("button", { name: `Measure the round trip to ${other}` }).click();
  await tab.locator("[role=status]", { hasText: /^\d+(\.\d+)? m?s/ }).waitFor();

  const cells = tab.locator("table tr", { hasText: other }).locator("td");
  await until("the loss of packets", async () => /^\d+\.\d % of [1-9][\d,]*$/.test(await cells.nth(4).innerText()));
  const fleet = tab.locator("#fleet");
  await until("the registry", async () => /page ok/.test(await fleet.innerText()));
  const registry = await fleet.innerText();
  assert.match(registry, /engine\s+\S*fleet\.db/);
  assert.match(registry, /revision\s+[1-9]/);
  assert.match(registry, /staleness\s+none/);
  assert.match(registry, /frozen\s+no/);
  assert.match(registry, /registered\s+generation \d+, incarnation \d+/);

  await show(tab, "policy");
  const policy = await tab.locator("main").innerText();
  assert.match(policy, /Rules that decide nothing[\s\S]*for-what-is-gone/);
  assert.match(policy, /Rules that contradict each other[\s\S]*nobody-is-slow/);
  await tab.getByLabel("Caller", { exact: true }).fill(other);
  await tab.getByLabel("Capability", { exact: true }).fill("com.acme.secret");
  await tab.getByRole("button", { name: "Explain" }).click();
  const why = tab.locator("#why");
  await why.waitFor();
  assert.match(await why.innerText(), /denied[\s\S]*no rule grants it[\s\S]*\[\[allow\]\]/);
  await tab.getByLabel("Capability", { exact: true }).fill("com.acme.shout");
  await tab.getByRole("button", { name: "Explain" }).click();
  await tab.getByLabel("Caller", { exact: true }).fill("linter");
  await tab.getByRole("button", { name: "Explain" }).click();
  await until("the denial of 2.0.0", async () => /invoke 2\.0\.0[\s\S]*forbidden by nobody-is-slow/.test(await why.innerText()));
  assert.match(await why.innerText(), /invoke 1\.0\.0[\s\S]*allowed by friends-may-shout/);
  await tab.getByLabel("Caller", { exact: true }).fill("nobody");
  await tab.getByRole("button", { name: "Explain" }).click();
  await tab.getByText("is no DID").waitFor();
  await tab.getByRole("button", { name: "Reload the policy" }).click();
  await until("the reload", async () => /rules are in force|[Rr]eloaded/.test(await said(tab).innerText()));

  await show(tab, "audit");
  await tab.getByLabel("Kind", { exact: true }).selectOption("denied");
  await until("the denial", async () => /^1 /.test(await tab.locator("#count").innerText()));
  await tab.locator(".list .line").first().click();
  await until("the record", async () => (await tab.locator("#record").innerText()).includes("com.acme.secret") || (await tab.locator("#record").innerText()).includes(other));
  await tab.getByLabel("Capability", { exact: true }).fill("com.acme.nothing");
  await tab.getByLabel("Capability", { exact: true }).press("Enter");
  await tab.getByText("No record matches.").waitFor();
  await tab.getByRole("button", { name: "Check the chain" }).click();
  await tab.locator("#chain .good").waitFor();
  const [download] = await Promise.all([tab.waitForEvent("download"), tab.getByRole("button", { name: "Export" }).click()]);
  const exported = readFileSync(await download.path(), "utf8").trim().split("\n").map((line) => JSON.parse(line));
  assert.ok(exported.some((entry) => entry.record.kind === "drift") && exported[0].seq === 1);

  await show(tab, "configuration");
  await tab.locator("#same").waitFor();
  assert.match(await tab.locator("main").innerText(), /policy\.files/);
  await tab.getByLabel("Only keys that are set").check();
  await until("only what is set", async () => !(await tab.locator("main table").innerText()).includes("timeouts.call_ms"));
  const file = readFileSync(a.file, "utf8");
  writeFileSync(a.file, file.replace("[log]", "[timeouts]\ncall_ms = 61000\n[log]"));
  await tab.reload();
  await tab.locator("tr", { hasText: "timeouts.call_ms" }).first().getByText("61000").waitFor();
  await tab.getByRole("button", { name: "Reload the file" }).click();
  await until("the reload", async () => (await said(tab).innerText()).startsWith("1 changes applied"));
  writeFileSync(a.file, file.replace("[log]", "[timeouts]\ncall_ms = 0\n[log]"));
  await tab.getByRole("button", { name: "Reload the file" }).click();
  await until("the mistake, with its line", async () => /capd\.toml:\d+: timeouts\.call_ms/.test(await said(tab).innerText()));
  writeFileSync(a.file, file);
  await tab.getByRole("button", { name: "Reload the file" }).click();
  await until("the reload of what was there", async () => (await said(tab).innerText()).startsWith("1 changes applied"));
  await tab.locator("#same").waitFor();
  await tab.getByLabel("Levels of the log").fill("loud");
  await tab.getByRole("button", { name: "Log by these levels" }).click();
  await until("a level that is none", async () => (await said(tab).innerText()).includes('"loud" is not a level'));
  await tab.getByLabel("Levels of the log").fill("error");
  await tab.getByRole("button", { name: "Log by these levels" }).click();
  await until("other levels", async () => (await said(tab).innerText()).includes("logs by error"));
  done("each view and what can be asked there");
}

/** A real call from the form, and the same call for elsewhere. */
async function tryIt(tab) {
  await show(tab, `capabilities/${encodeURIComponent("com.acme.shout:2.0.0")}`);
  await tab.getByLabel(/^text/).fill("over the page");
  await tab.getByLabel(/^loud/).selectOption("true");
  await tab.getByRole("button", { name: "Call it" }).click();
  await tab.locator("#result").waitFor();
  assert.equal(await tab.locator("#result").innerText(), '"OVER THE PAGE!"');
  for (const [label, wanted] of [["capctl", `capctl call com.acme.shout:2.0.0 --params '{"text":"over the page","loud":true}'`], ["curl", "--unix-socket"], ["Python", `{"text": "over the page", "loud": True}`]]) {
    await tab.getByRole("button", { name: `Copy as ${label}` }).click();
    await until(`the copy for ${label}`, async () => (await tab.evaluate(() => navigator.clipboard.readText())).includes(wanted));
  }
  await tab.getByLabel("Write the params as JSON").check();
  await tab.getByLabel("Params as JSON", { exact: true }).fill('{"text": 1}');
  await tab.getByRole("button", { name: "Call it" }).click();
  await tab.locator("ol.steps li.failed").waitFor();
  assert.match(await tab.locator("main").innerText(), /4004/);
  await show(tab, "audit");
  await tab.getByLabel("Kind", { exact: true }).selectOption("operator");
  await until("the audited calls", async () => /^[1-9]/.test(await tab.locator("#count").innerText()));
  done("try it makes a real call, which is audited");
}

/** A call from its start to its result, and one that is cancelled. */
async function watchedCall(tab) {
  const call = a.ask("POST", "/v1/call/com.acme.slow?timeout=60s", { text: "wait" });
  await show(tab, "calls");
  const line = tab.locator(".list .line", { hasText: "com.acme.slow" }).first();
  await line.getByText("executing").waitFor();
  await line.click();
  const steps = tab.locator("ol.steps").first();
  await steps.locator("li.now", { hasText: "provider" }).waitFor();
  assert.match(await steps.innerText(), /written before the provider sees it/);
  held.shift()();
  await steps.locator("li.done", { hasText: "success" }).waitFor();
  assert.equal((await call).json, "done");
  await timelineOf(tab, ["admit", "journal", "provider", "result", "journal"], [/^1 .* m?s (success) local provider/s]);

  const doomed = a.ask("POST", "/v1/call/com.acme.slow?timeout=60s", { text: "cancelled" });
  await show(tab, "calls?outcome=running");
  await tab.locator(".list .line", { hasText: "com.acme.slow" }).first().click();
  await tab.getByRole("button", { name: "Cancel this call" }).click();
  await tab.locator("ol.steps li.failed").waitFor();
  assert.notEqual((await doomed).status, 200);
  held.shift();
  await timelineOf(tab, ["admit", "journal", "provider", "result", "journal"], [/unanswered/]);
  done("a call watched from its start to its result, and one cancelled");
}

/** The phases of the call that is shown, as bars that follow each other, and its tries. */
async function timelineOf(tab, phases, tries) {
  const spans = tab.locator("ol.spans").first();
  await until("the phases", async () => JSON.stringify(await spans.locator("li b").allInnerTexts()) === JSON.stringify(phases));
  const bars = await spans.locator("rect").evaluateAll((all) => all.map((bar) => [Number(bar.getAttribute("x")), Number(bar.getAttribute("width"))]));
  assert.equal(bars.length, phases.length);
  assert.ok(bars.every(([x, width], index) => width > 0 && x + width <= 100.01 && x >= (bars[index - 1]?.[0] ?? 0)), JSON.stringify(bars));
  const rows = (await tab.getByRole("table", { name: /^Copies/ }).first().locator("tbody tr").allInnerTexts()).map((row) => row.replace(/\s+/g, " "));
  assert.equal(rows.length, tries.length, rows.join("\n"));
  tries.forEach((wanted, index) => assert.match(rows[index], wanted));
}

/** A call whose provider's sidecar is killed shows a try that was lost and one that succeeded. */
async function triedAgain(tab) {
  const call = a.ask("POST", "/v1/call/org.example.lint?timeout=60s", { path: STUCK });
  await until("the call is with its provider", () => stuck.length > 0);
  await b.killed();
  await lint((_, reply) => reply("clean"));
  const answer = await call;
  assert.equal(answer.json, "clean");
  await show(tab, `calls/${answer.headers["capd-call"]}`);
  await tab.locator("ol.steps li.done", { hasText: "success" }).waitFor();
  const tries = tab.getByRole("table", { name: "Copies sent to peers" });
  await tries.waitFor();
  const rows = await tries.locator("tbody tr").allInnerTexts();
  assert.equal(rows.length, 2, rows.join("\n"));
  assert.match(rows[0], /lost\s+linter\s+quic #\d+/);
  assert.match(rows[1], /success\s+linter\s+quic #\d+/);
  const phases = await tab.locator("ol.spans li b").allInnerTexts();
  for (const phase of ["choose", "wire", "queue", "result"]) assert.ok(phases.includes(phase), phases.join(" "));
  assert.match(await tab.locator("main").innerText(), /trace\s+[0-9a-f]{32}/);
  await accessible(tab, "a call with two tries");
  done("a call that was tried twice");
}

/** Everything can be reached and used with the keyboard alone. */
async function keyboard(tab) {
  await show(tab, "overview");
  const focused = () => tab.evaluate(() => document.activeElement?.textContent ?? "");
  const tabTo = async (text) => {
    for (let step = 0; step < 60; step += 1) {
      await tab.keyboard.press("Tab");
      if ((await focused()).trim() === text) return;
    }
    throw new Error(`the Tab key does not lead to ${text}`);
  };
  await tab.evaluate(() => document.activeElement?.blur());
  for (const [link, heading] of [["Capabilities", "Capabilities"], ["Policy", "Policy"], ["Calls", "Calls"]]) {
    await tabTo(link);
    await tab.keyboard.press("Enter");
    await tab.locator("main h1", { hasText: heading }).waitFor();
    assert.equal(await tab.evaluate(() => document.activeElement?.id), "main", "the view has the focus");
  }
  await tab.locator(".list .line").first().waitFor();
  for (let step = 0; step < 20; step += 1) {
    await tab.keyboard.press("Tab");
    if (await tab.evaluate(() => document.activeElement?.matches(".list .rows"))) break;
  }
  await tab.keyboard.press("ArrowDown");
  const first = await tab.evaluate(() => document.activeElement?.getAttribute("href"));
  assert.match(first, /^#\/calls\//);
  for (let step = 0; step < 40; step += 1) await tab.keyboard.press("ArrowDown");
  const later = await tab.evaluate(() => document.activeElement?.getAttribute("href"));
  assert.notEqual(first, later);
  await tab.keyboard.press("Enter");
  await tab.locator("ol.steps").first().waitFor();
  assert.ok(tab.url().endsWith(later.slice(1)));
  // What has the focus is seen to have it.
  await tabTo("All calls");
  assert.notEqual(await tab.evaluate(() => getComputedStyle(document.activeElement).outlineStyle), "none");
  done("keyboard only");
}

/** Another site in the same browser, which has the cookie. */
async function sites(context, tab) {
  const evil = await context.newPage();
  await evil.route("http://evil.example/**", (route) => route.fulfill({ contentType: "text/html", body: "<!doctype html><title>evil</title><form method=post></form><iframe></iframe>" }));
  await evil.goto("http://evil.example/");
  const got = await evil.evaluate(async (base) => {
    const attempt = async (work) => { try { return await work(); } catch (error) { return error.name; } };
    return {
      read: await attempt(async () => (await fetch(`${base}/data/self`, { credentials: "include" })).status),
      act: await attempt(async () => (await fetch(`${base}/act/reload`, { method: "POST", credentials: "include", headers: { "content-type": "application/json" }, body: "{}" })).status),
      script: await attempt(() => new Promise((resolve) => {
        const script = document.createElement("script");
        script.src = `${base}/app.js`;
        script.onload = () => resolve("loaded");
        script.onerror = () => resolve("kept out");
        document.head.append(script);
      })),
    };
  }, base);
  assert.deepEqual(got, { read: "TypeError", act: "TypeError", script: "kept out" });
  const form = await context.newPage();
  await form.route("http://evil.example/**", (route) => route.fulfill({ contentType: "text/html", body: `<!doctype html><form method=post action="${base}/act/reload" enctype="text/plain"><input name="{}" value=""></form>` }));
  await form.goto("http://evil.example/");
  const [answer] = await Promise.all([form.waitForResponse(`${base}/act/reload`), form.evaluate(() => document.forms[0].submit())]);
  assert.equal(answer.status(), 403);
  await evil.close();
  await form.close();
  await tab.bringToFront();
  done("another site gets nothing");
}

/** Accessible, in both colours, on a small and a large screen, and at 400 %. Pictures are taken on the way. */
async function looks() {
  const call = a.ask("POST", "/v1/call/com.acme.slow?timeout=60s", { text: "in flight" });
  const id = (await until("a call in flight", async () => (await a.ask("GET", "/v1/calls?state=running&limit=1")).json.calls[0])).id;
  const twice = (await a.ask("GET", "/v1/calls?capability=org.example.lint&limit=1")).json.calls[0].id;
  const routes = [...VIEWS.map((view) => [view, view]), ["contracts", "contracts/com.acme.shout"], ["capability", `capabilities/${encodeURIComponent("com.acme.shout:1.1.0")}`], ["call", `calls/${id}`], ["timeline", `calls/${twice}`],
    ["why", `policy?caller=${other}&capability=com.acme.shout`]];
  const sizes = [[320, 640, "light"], [320, 640, "dark"], [1920, 1080, "light"], [1920, 1080, "dark"]];
  await Promise.all([sizes.slice(0, 2), sizes.slice(2)].map(async (some) => {
    for (const [width, height, scheme] of some) {
      const context = await window_(width, height, scheme);
      const tab = await context.newPage();
      const faults = watched(tab);
      await tab.goto(server.url);
      await tab.locator("#state.good").waitFor();
      for (const [name, route] of routes) {
        await show(tab, route);
        if (name === "contracts" && route.includes("/")) await tab.getByRole("button", { name: /1\.0\.0 with a provider of 2\.0\.0/ }).click();
        if (name === "peers") await tab.locator("summary", { hasText: other }).waitFor();
        if (name === "peers") await tab.locator("#fleet dl").waitFor();
        if (name === "call" || name === "timeline") await tab.locator("ol.spans").waitFor();
        if (name === "calls" || name === "audit") await tab.locator(".list .line").first().waitFor();
        const wide = await tab.evaluate(() => document.documentElement.scrollWidth - innerWidth);
        assert.ok(wide <= 0, `${name} is ${wide} px wider than ${width} px`);
        await accessible(tab, `${name} at ${width} px, ${scheme}`);
        if (pictures && width === 1920 && scheme === "light" && PICTURED.includes(name)) await picture(tab, name, scheme);
      }
      assert.deepEqual(faults, []);
      await context.close();
    }
  }));
  if (pictures) {
    const context = await window_(1920, 1080, "dark");
    const tab = await context.newPage();
    await tab.goto(server.url);
    await show(tab, "overview");
    await tab.locator("#advice").waitFor();
    await picture(tab, "overview", "dark");
    await context.close();
  }
  held.shift()();
  await call;
  done(`axe finds nothing in ${routes.length} views, dark and light, at 320 px (400 % of 1280 px) and 1,920 px`);
}

async function accessible(tab, what) {
  if (!(await tab.evaluate(() => "axe" in window))) await tab.evaluate(AXE);
  const { violations } = await tab.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));
  const told = violations.map((one) => `${one.id}: ${one.help}\n${one.nodes.slice(0, 3).map((node) => `    ${node.html} ${node.failureSummary ?? ""}`).join("\n")}`);
  assert.deepEqual(told, [], what);
}

async function picture(tab, name, scheme) {
  const was = tab.viewportSize();
  await tab.setViewportSize({ width: 1180, height: 760 });
  await tab.evaluate(() => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve))));
  const camera = await tab.context().newCDPSession(tab);
  const { data } = await camera.send("Page.captureScreenshot", { format: "webp", quality: 80 });
  writeFileSync(path.join(pictures, `page-${name}${scheme === "dark" ? "-dark" : ""}.webp`), data, "base64");
  await tab.setViewportSize(was);
}

/** Two clicks drain a sidecar: it takes no calls, tells its peers and its fleet, and the page says so. */
async function drained() {
  const context = await window_(1280, 800, "light");
  const tab = await context.newPage();
  await tab.goto(server.url);
  await tab.locator("#state.good").waitFor();
  await show(tab, "configuration");
  await tab.getByRole("button", { name: "Drain", exact: true }).click();
  await until("the question", async () => (await said(tab).innerText()).includes("Press it again"));
  assert.equal((await a.ask("POST", "/v1/call/com.acme.echo", {})).status, 200, "one click drains nothing");
  await tab.getByRole("button", { name: "Drain: take no new calls until a restart" }).click();
  await until("the drain", async () => (await said(tab).innerText()).includes("no calls are in flight"));
  const refused = await a.ask("POST", "/v1/call/com.acme.echo", {});
  assert.equal(refused.json.code, 5002, JSON.stringify(refused.json));
  await show(tab, "overview");
  await until("the advice", async () => /listeners failed: the sidecar drains/.test(await tab.locator("#advice").innerText()));
  await show(tab, "peers");
  await until("nothing registered", async () => /registered\s+nothing/.test(await tab.locator("#fleet").innerText()));
  assert.match(await tab.locator("#fleet").innerText(), /staleness\s+not read any more/);
  await show(tab, "audit");
  await tab.getByLabel("Kind", { exact: true }).selectOption("operator");
  await tab.locator(".list .line").first().click();
  await until("the record", async () => (await tab.locator("#record").innerText()).includes("drain"));
  await context.close();
  done("two clicks drain the sidecar");
}

/** A sidecar that goes and comes back is told of, and the page goes on. */
async function restart() {
  const context = await window_(1280, 800, "dark");
  const tab = await context.newPage();
  await tab.goto(server.url);
  await tab.locator("#state.bad", { hasText: /^draining$/ }).waitFor();
  await a.stop();
  await tab.locator("#state.bad", { hasText: /^no contact$/ }).waitFor();
  await tab.getByText("the page goes on by itself").waitFor();
  await context.close();
  done("a sidecar that is gone is told of");
}
