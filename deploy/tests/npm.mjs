// Uses installed npm packages: starts a sidecar by the package's own command, serves a capability, and calls it.
// Runs in the folder where `npm install capd` ran. Fails where anything is not as expected.
import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { createRequire } from "node:module";

const { Agent, Client } = await import(createRequire(join(process.cwd(), "package.json")).resolve("capd"));

// Variables of whoever runs this would configure the sidecar.
const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith("CAPD_")));
const bin = (name) => join("node_modules", ".bin", name);
const folder = mkdtempSync(join(tmpdir(), "capd-npm-"));
const words = ["run", "--announce", "--stop-with-stdin", "--set", `agent.dir=${folder}/state`, "--set", "log.level=warn"];
const sidecar = spawn(bin("capd"), words, { env, stdio: ["pipe", "pipe", "inherit"] });
const exited = once(sidecar, "exit");
try {
  const [line] = await once(createInterface({ input: sidecar.stdout }), "line");
  const { socket } = JSON.parse(line);

  const agent = new Agent({ address: socket });
  agent.provide("com.example.double", { input: { type: "integer" }, output: { type: "integer" } }, async (number) => number * 2);
  const serving = agent.serve();
  await agent.ready();

  assert.equal(await new Client({ address: socket }).call("com.example.double", 21), 42);
  // Not execFileSync: the agent that answers is in this process.
  const call = (params) =>
    new Promise((resolve) => {
      const words = ["--socket", socket, "call", "com.example.double", "--params", params];
      execFile(bin("capctl"), words, { env }, (error, stdout, stderr) => resolve({ code: error?.code ?? 0, stdout, stderr }));
    });
  const called = await call("4");
  assert.equal(called.stdout, "8\n", called.stderr);
  assert.equal((await call('"four"')).code, 4, "the exit code of capctl is that of its launcher");

  agent.stop();
  await serving;
  // The launcher hands the signal on, and ends as capd does.
  sidecar.kill("SIGTERM");
  assert.deepEqual(await exited, [0, null]);
  console.log("the SDK and capctl called an agent of the SDK through the sidecar that npm installed");
} finally {
  sidecar.stdin.destroy();
  rmSync(folder, { recursive: true, force: true });
}
