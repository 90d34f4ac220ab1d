/** A configuration in, a running `capd` out: its binary is the environment's CAPD_BIN. */

import { type ChildProcess, spawn } from "node:child_process";
import { mkdirSync, openSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

/** One sidecar in a folder of its own. `kill` and `start` are a crash and a restart with the same identity and state. */
export class Capd {
  announcement: Record<string, string> = {};
  readonly #folder: string;
  readonly #peers: readonly Capd[];
  #process: ChildProcess | undefined;

  constructor(folder: string, peers: readonly Capd[] = []) {
    this.#folder = folder;
    this.#peers = peers;
    mkdirSync(folder, { mode: 0o700 });
  }

  get socket(): string {
    return join(this.#folder, "state/capd.sock");
  }

  get http(): string {
    return `http://${this.announcement["local_tcp"]}`;
  }

  get token(): string {
    return readFileSync(join(this.#folder, "state/token"), "utf8").trim();
  }

  /** Starts it and waits until it listens. */
  async start(): Promise<this> {
    const config = join(this.#folder, "capd.toml");
    writeFileSync(config, this.#config());
    const log = openSync(join(this.#folder, "capd.log"), "a");
    const root = process.geteuid?.() === 0 ? ["--set", "process.allow_root=on"] : [];
    const child = spawn(process.env["CAPD_BIN"]!, ["run", "--announce", "--stop-with-stdin", "--config", config, ...root], {
      env: { PATH: process.env["PATH"], HOME: process.env["HOME"] },
      stdio: ["pipe", "pipe", log],
    });
    this.#process = child;
    this.announcement = await new Promise((resolve, reject) => {
      let text = "";
      child.stdout?.on("data", (part: Buffer) => {
        text += part.toString();
        if (text.includes("\n")) {
          resolve(JSON.parse(text.slice(0, text.indexOf("\n"))) as Record<string, string>);
        }
      });
      child.on("exit", () => reject(new Error(`capd announced nothing\n${readFileSync(join(this.#folder, "capd.log"), "utf8")}`)));
    });
    return this;
  }

  /** Ends it as if the machine had lost power. */
  async kill(): Promise<void> {
    const child = this.#process;
    this.#process = undefined;
    if (child !== undefined && child.exitCode === null) {
      const gone = new Promise((resolve) => child.on("exit", resolve));
      child.kill("SIGKILL");
      await gone;
    }
  }

  #config(): string {
    // A restart listens where it listened before.
    const { quic = "127.0.0.1:0", local_tcp: tcp = "127.0.0.1:0" } = this.announcement;
    const lines = ["[agent]", `dir = "${this.#folder}/state"`, "[listen]", `quic = "${quic}"`, `local_tcp = "${tcp}"`, "[peer]", 'admit = "any"', 'serves = ["*"]'];
    for (const { announcement } of this.#peers) {
      lines.push("[[peers]]", `did = "${announcement["did"]}"`, `addresses = ["quic://${announcement["quic"]}"]`, 'serves = ["*"]');
    }
    return [...lines, "[[allow]]", 'callers = ["*"]', 'capabilities = ["*"]', 'permissions = ["*"]', ""].join("\n");
  }
}
