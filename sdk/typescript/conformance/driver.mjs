// The conformance driver of this SDK: `node driver.mjs STEPS`; see sdk/conformance/README.md. Uses the built package.

import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";

// A file: URL of another build, such as the installed package; this checkout's build unless set.
const build = process.env.CAPD_SDK ?? new URL("../dist/", import.meta.url).href;
const { Agent, CallError, CapdError, Client } = await import(`${build}index.js`);
const { parse, stringify } = await import(`${build}json.js`);

const folder = process.env.CAPD_CONFORMANCE_DIR;
const WAIT_MS_MAX = 20_000;
const POLL_MS = 3;

const setSignal = (name) => writeFileSync(join(folder, name), "");

async function waitSignal(name) {
  const end = performance.now() + WAIT_MS_MAX;
  while (!existsSync(join(folder, name))) {
    if (performance.now() > end) {
      console.error(`the signal ${name} never came`);
      process.exit(1);
    }
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
  }
}

function errorLine(error) {
  if (error instanceof DOMException && error.name === "AbortError") {
    return { kind: "Cancelled" };
  }
  if (!(error instanceof CapdError)) {
    throw error;
  }
  const { name: kind, code, message, details, call, retry } = error;
  return { kind, code, message, details, call, retry };
}

function options({ version, timeout_ms: timeout, key, thread, affinity, built_against: builtAgainst }, signal) {
  return { version, timeout, key, thread, affinity, builtAgainst, signal };
}

/** A handler that performs a script, and notes its calls. */
function handler(script, handled) {
  return async (params, call) => {
    const line = { id: call.id, capability: call.capability, params: call.params, caller: call.caller, ended: "failed" };
    handled.push(line);
    for (const action of script) {
      const [[verb, argument]] = Object.entries(action);
      switch (verb) {
        case "return":
        case "echo":
          line.ended = "returned";
          return verb === "return" ? argument : params;
        case "fail":
          throw new CallError(argument.code, argument.message, argument.details);
        case "crash":
          throw new Error(argument);
        case "progress":
          if ("progress_pct" in argument) {
            call.progress(argument.progress_pct);
          } else {
            call.status(argument.status_text, { eta: argument.eta_ms });
          }
          break;
        case "input":
          call.ask(argument.prompt);
          break;
        case "wait":
          await waitSignal(argument);
          break;
        case "signal":
          setSignal(argument);
          break;
        case "wait_cancel":
          await new Promise((resolve) => (call.signal.aborted ? resolve() : call.signal.addEventListener("abort", resolve)));
          line.ended = "cancelled";
          setSignal("cancelled");
          throw call.signal.reason;
        default:
          throw new Error(`there is no verb ${verb}`);
      }
    }
  };
}

class Provider {
  handled = [];

  constructor(step, index) {
    this.index = index;
    this.agent = new Agent({ concurrency: step.concurrency });
    for (const { name, handler: script, inputSchema: input, outputSchema: output, ...more } of step.capabilities) {
      this.agent.provide(name, { ...more, input, output }, handler(script, this.handled));
    }
    this.ended = this.agent.serve().then(() => undefined, errorLine);
  }

  async end(byItself) {
    if (!byItself) {
      await this.agent.stop();
    }
    return { step: this.index, handled: this.handled, error: await this.ended };
  }
}

let client = new Client();
let tools;
let provider;

/** The members of the step's line. */
async function perform(index, step, line, signal) {
  switch (step.do) {
    case "client":
      client = new Client({ wait: step.wait_ms });
      return {};
    case "call":
      return { value: await client.call(step.name, step.params, options(step, signal)) };
    case "call_async":
      return { value: await client.start(step.name, step.params, options(step, signal)) };
    case "stream": {
      const stream = client.stream(step.name, step.params, options(step, signal));
      line.events = [];
      for await (const { kind, data } of stream) {
        line.events.push({ kind, data });
      }
      return { value: await stream.result() };
    }
    case "result":
    case "get":
    case "cancel":
      return { value: await client[step.do](step.call) };
    case "calls":
      return { value: await client.calls(step) };
    case "list":
      return { value: await client.capabilities(step) };
    case "describe":
      return { value: await client.describe(step.id) };
    case "self":
      return { value: await client.self() };
    case "tools":
      tools = await client.tools(step.format, { namespace: step.namespace });
      return { value: tools.definitions };
    case "call_tool":
      return { value: await client.callTool(tools, step.tool, step.arguments, { thread: step.thread }) };
    case "provide":
      provider = new Provider(step, index);
      return {};
    case "close":
    case "ended":
      return provider.end(step.do === "ended");
    case "wait":
      await waitSignal(step.file);
      return {};
    case "signal":
      setSignal(step.file);
      return {};
    default:
      return { unsupported: `there is no step ${step.do}` };
  }
}

for (const [index, step] of parse(readFileSync(process.argv[2])).entries()) {
  const line = { step: index };
  const user = new AbortController();
  if (step.cancel_when !== undefined) {
    void waitSignal(step.cancel_when).then(() => user.abort());
  }
  try {
    Object.assign(line, await perform(index, step, line, user.signal));
  } catch (error) {
    line.error = errorLine(error);
  }
  if (Object.keys(line).length > 1) {
    console.log(stringify(line));
  }
}
client.close();
