// Runs the program of the platform's package in place of this one: same arguments, streams, signals and exit code.
import { spawn } from "node:child_process";
import { createRequire } from "node:module";
import { constants } from "node:os";

/** Runs `capd` or `capctl`. */
export function run(name) {
  const child = spawn(find(name), process.argv.slice(2), { stdio: "inherit" });
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT"]) {
    // From a terminal the program gets the signal itself, and a second one would stop capd at once.
    process.on(signal, () => isOfTerminal(signal) || child.kill(signal));
  }
  child.on("error", (error) => fail(`cannot start ${name}: ${error.message}`));
  child.on("exit", (code, signal) => process.exit(code ?? 128 + constants.signals[signal]));
}

function find(name) {
  const platform = `capd-${process.platform}-${process.arch}`;
  try {
    return createRequire(import.meta.url).resolve(`${platform}/bin/${name}`);
  } catch {
    return fail(`${platform} is not installed: npm leaves it out with --omit=optional, and there is none for musl or other systems`);
  }
}

function isOfTerminal(signal) {
  return process.stdin.isTTY === true && (signal === "SIGINT" || signal === "SIGQUIT");
}

function fail(message) {
  console.error(`capd: ${message}`);
  return process.exit(1);
}
