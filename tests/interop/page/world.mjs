// What the page is shown with: two sidecars that are peers, and their agents; all of it ours, all of it on loopback.
import { spawn } from "node:child_process";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import http from "node:http";
import { once } from "node:events";
import { createInterface } from "node:readline";
import path from "node:path";

export const HOSTILE = `<img src=x onerror="document.title='broken'"><script>document.title='broken'</script>`;

const text = { type: "object", properties: { text: { type: "string", description: "What to shout." } }, required: ["text"], additionalProperties: false };
const loud = { ...text, properties: { ...text.properties, loud: { type: "boolean" } } };
const strict = { ...loud, required: ["text", "loud"] };

const SERVED = {
  namespace: "com.acme",
  capabilities: [
    { name: "shout", version: "1.0.0", idempotent: true, description: "Writes a text in capital letters.", inputSchema: text, outputSchema: { type: "string" } },
    { name: "shout", version: "1.1.0", idempotent: true, description: "Writes a text in capital letters.", inputSchema: loud, outputSchema: { type: "string" } },
    { name: "shout", version: "2.0.0", idempotent: true, description: "Writes a text in capital letters, louder.", inputSchema: strict, outputSchema: { type: "string" } },
    { name: "slow", version: "1.0.0", description: "Waits until it is let go.", inputSchema: text, outputSchema: { type: "string" } },
    { name: "echo", version: "1.0.0", idempotent: true, description: "Gives back what it gets." },
    { name: "secret", version: "1.0.0", description: "For nobody else." },
    { name: "hostile", version: "1.0.0", idempotent: true, description: HOSTILE,
      inputSchema: { type: "object", properties: { "<b>name</b>": { type: "string", description: HOSTILE } } } },
  ],
};
const REMOTE = { namespace: "org.example", capabilities: [
  { name: "lint", version: "2.0.0", idempotent: true, description: "Lints a file.",
    inputSchema: { type: "object", properties: { path: { type: "string" } }, required: ["path"] }, outputSchema: { type: "string" } },
  { name: "moved", version: "1.0.0", idempotent: true, description: "Its contract has changed.",
    inputSchema: { type: "object", properties: { path: { type: "string" }, mode: { enum: ["a", "b"] } }, required: ["path", "mode"] } }] };
const REQUIRES = `version: 1
agent: agent://page-test
requires:
  - name: org.example.lint
    inputSchema: { type: object, properties: { path: { type: string } }, required: [path] }
    outputSchema: { type: string }
  - name: org.example.moved
    inputSchema: { type: object, properties: { path: { type: string } }, required: [path] }
`;

/** The file that is linted by nobody. */
export const STUCK = "stuck.rs";

/** A sidecar of ours. */
export class Sidecar {
  static async start(capd, folder, name, config, files = {}) {
    const dir = path.join(folder, name);
    mkdirSync(dir, { recursive: true, mode: 0o700 });
    for (const [file, content] of Object.entries(files)) writeFileSync(path.join(dir, file), content, { mode: 0o600 });
    const file = path.join(dir, "capd.toml");
    writeFileSync(file, `[agent]\nname = "${name}"\ndir = "${dir}/state"\n${config.agent ?? ""}\n[listen]\nquic = "127.0.0.1:0"\n[log]\nlevel = "warn"\n${config.rest ?? ""}`, { mode: 0o600 });
    const made = new Sidecar();
    Object.assign(made, { capd, file, name });
    await made.run();
    return made;
  }

  async run() {
    this.process = spawn(this.capd, ["run", "--announce", "--stop-with-stdin", "--config", this.file], { stdio: ["pipe", "pipe", "inherit"], env: environment() });
    Object.assign(this, JSON.parse(await line(this.process, this.name)));
  }

  /** Kills it, and starts it again at the same address. */
  async killed() {
    this.agent?.destroy();
    this.answers?.destroy();
    this.agent = this.answers = undefined;
    const ended = once(this.process, "exit");
    this.process.kill("SIGKILL");
    await ended;
    writeFileSync(this.file, readFileSync(this.file, "utf8").replace(`quic = "127.0.0.1:0"`, `quic = "${this.quic}"`), { mode: 0o600 });
    await this.run();
  }

  static did(capd, folder, name) {
    return new Promise((resolve, reject) => {
      mkdirSync(path.join(folder, name), { recursive: true, mode: 0o700 });
      const child = spawn(capd, ["id", "--set", `agent.dir=${folder}/${name}/state`], { env: environment() });
      child.stdout.on("data", (text) => resolve(String(text).trim()));
      child.on("exit", (code) => code && reject(new Error(`capd id ends with ${code}`)));
    });
  }

  /** A request to its HTTP API. */
  ask(method, route, body, headers = {}, agent = (this.agent ??= connections())) {
    return new Promise((resolve, reject) => {
      const request = http.request({ socketPath: this.socket, method, path: route, agent,
        headers: { host: "localhost", ...(body === undefined ? {} : { "content-type": "application/json" }), ...headers } }, async (answer) => {
        let told = "";
        for await (const piece of answer) told += piece;
        resolve({ status: answer.statusCode, headers: answer.headers, json: told ? JSON.parse(told) : null });
      });
      // A connection that was idle may be closed while it is taken up again.
      request.on("error", (error) => (request.reusedSocket && error.code === "ECONNRESET" ? resolve(this.ask(method, route, body, headers, agent)) : reject(error)));
      request.end(body === undefined ? undefined : JSON.stringify(body));
    });
  }

  /** Runs capctl against it, whatever comes of it. */
  capctl(...words) {
    const child = spawn(path.join(path.dirname(this.capd), "capctl"), ["--socket", this.socket, ...words], { stdio: "ignore", env: environment() });
    return once(child, "exit");
  }

  /** Serves capabilities; `answer(call, reply)` is told of each call. */
  provide(declared, answer) {
    return new Promise((resolve, reject) => {
      const request = http.request({ socketPath: this.socket, method: "POST", path: "/v1/provide", headers: { host: "localhost", "content-type": "application/json" } }, (events) => {
        let text = "";
        let session = "";
        events.setEncoding("utf8");
        events.on("data", (piece) => {
          text += piece;
          let end;
          while ((end = text.indexOf("\n\n")) >= 0) {
            const event = text.slice(0, end);
            text = text.slice(end + 2);
            const name = /^event: (.*)$/m.exec(event)?.[1];
            const data = /^data: (.*)$/m.exec(event)?.[1];
            if (name === "ready") { session = JSON.parse(data).session; resolve(request); }
            if (name === "call") {
              const call = JSON.parse(data);
              // Calls that wait take no connection from the answers that they wait for.
              const say = (what, body) => this.ask("POST", `/v1/provide/${session}/calls/${call.id}/${what}`, body, {}, (this.answers ??= connections()));
              answer(call, (result) => say("result", { result }), (body) => say("progress", body));
            }
            if (!name && events.statusCode !== 200) reject(new Error(event));
          }
        });
        if (events.statusCode !== 200) events.on("end", () => reject(new Error(text)));
      });
      request.on("error", () => {});
      request.end(JSON.stringify({ ...declared, concurrency: 256 }));
    });
  }

  async stop() {
    this.agent?.destroy();
    this.answers?.destroy();
    if (this.process.exitCode === null) {
      this.process.stdin.end();
      await once(this.process, "exit");
    }
  }
}

/** Everything that is shown, and the page that shows it. */
export async function world(capd, folder) {
  const [main, other] = [await Sidecar.did(capd, folder, "main"), await Sidecar.did(capd, folder, "other")];
  const authority = await capctl(capd, "fleet", "init", "--cell", "page", "--authority", `${folder}/authority.key`, "--json").then(({ authority }) => authority);
  const fleet = async (name, did, serves) => {
    await capctl(capd, "fleet", "admit", did, "--cell", "page", "--authority", `${folder}/authority.key`, "--serves", serves, "--output", `${folder}/${name}/membership`, "--json");
    return `[fleet]\ncell = "page"\nauthority = "${authority}"\nmembership = "membership"\nfile = "../fleet.db"\n`;
  };
  const b = await Sidecar.start(capd, folder, "other", {
    rest: `${await fleet("other", other, "org.example.*")}[[peers]]\ndid = "${main}"\nserves = ["*"]\n[[allow]]\ncallers = ["${main}"]\ncapabilities = ["org.example.*"]\n`,
  });
  const policy = `@id("friends-may-shout")\npermit (principal == Caller::"${other}", action, resource == Capability::"com.acme.shout");\n`
    + `@id("nobody-is-slow")\nforbid (principal == Caller::"${other}", action == Action::"invoke", resource == Capability::"com.acme.shout")\nwhen { resource.major == 2 };\n`
    + `@id("for-what-is-gone")\npermit (principal, action, resource == Capability::"com.acme.gone");\n`;
  const a = await Sidecar.start(capd, folder, "main", {
    agent: `capabilities = "capabilities.yaml"\n`,
    rest: `${await fleet("main", main, "com.acme.*")}[[peers]]\ndid = "${other}"\nname = "linter"\naddresses = ["quic://${b.quic}"]\nserves = ["*"]\n`
      + `[[peers]]\ndid = "did:key:z6MkhaXgBZDvotDkL5257faiztiGiC2QtKLGpbnnEGta2doK"\naddresses = ["quic://127.0.0.1:9"]\nserves = ["*"]\n`
      + `[policy]\nfiles = ["rules.cedar"]\n`,
  }, { "rules.cedar": policy, "capabilities.yaml": REQUIRES });
  const held = [];
  await a.provide(SERVED, (call, reply, progress) => {
    if (call.capability === "com.acme.slow") {
      progress({ progress_pct: 40 });
      held.push(() => reply("done"));
    } else if (call.capability === "com.acme.shout") {
      reply(call.params.text.toUpperCase() + (call.params.loud ? "!" : ""));
    } else {
      reply(call.params);
    }
  });
  // Calls of one file are kept without an answer.
  const stuck = [];
  const lint = (answer) => b.provide(REMOTE, answer);
  await lint((call, reply) => (call.params.path === STUCK ? stuck.push(call) : reply("clean")));
  return { a, b, held, main, other, lint, stuck };
}

/** What a command of capctl's that needs no sidecar says, as JSON. */
async function capctl(capd, ...words) {
  const child = spawn(path.join(path.dirname(capd), "capctl"), words, { stdio: ["ignore", "pipe", "inherit"], env: environment() });
  let told = "";
  for await (const piece of child.stdout) told += piece;
  return JSON.parse(told);
}

/** `capd page`, and the URL that it prints. */
export async function page(capd, config) {
  const process = spawn(capd, ["page", "--stop-with-stdin", "--config", config], { stdio: ["pipe", "pipe", "inherit"], env: environment() });
  const url = await line(process, "page");
  const stop = async () => { process.stdin.end(); await once(process, "exit"); };
  return { url, stop };
}

const connections = () => new http.Agent({ keepAlive: true, maxSockets: 32 });

function environment() {
  const { PATH, HOME } = process.env;
  return { PATH, HOME };
}

async function line(child, name) {
  const lines = createInterface({ input: child.stdout });
  const [told] = await Promise.race([once(lines, "line"), once(child, "exit").then(([code]) => { throw new Error(`${name} ends with ${code}`); })]);
  return told;
}

/** Waits for a condition, with a bound. */
export async function until(what, holds, patience = 20000) {
  const end = Date.now() + patience;
  let last;
  for (;;) {
    try {
      const value = await holds();
      if (value) return value;
    } catch (error) { last = error; }
    if (Date.now() > end) throw new Error(`never: ${what}${last ? ` (${last.message})` : ""}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}
