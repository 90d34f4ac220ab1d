/** Capabilities as tools of a language model. */

import { Refused } from "./errors.js";
import { parse } from "./json.js";
import { isRecord } from "./problem.js";

/** Whose tool definitions: those of OpenAI's models, of Anthropic's, or of the Model Context Protocol. */
export type ToolFormat = "openai" | "anthropic" | "mcp";

/** Tool definitions, ready to be given to a model's SDK, and the capability behind each name. */
export class Tools {
  /** The definitions, in the format that was asked for. */
  readonly definitions: any[];
  /** The capability id behind each tool name. */
  readonly names: ReadonlyMap<string, string>;
  readonly #wrapped: ReadonlySet<unknown>;

  /** @internal */
  constructor(definitions: unknown[], names: Record<string, unknown>, wrapped: unknown[]) {
    this.definitions = [...definitions];
    this.names = new Map(Object.entries(names).map(([name, id]) => [name, String(id)]));
    this.#wrapped = new Set(wrapped);
  }

  /**
   * The capability id behind a tool name.
   *
   * @throws Refused with code 4002 for a name that is not among the definitions
   */
  capability(tool: string): string {
    const id = this.names.get(tool);
    if (id === undefined) {
      const known = [...this.names.keys()].sort().join(", ") || "none";
      throw new Refused(`there is no tool ${JSON.stringify(tool)}; the tools are: ${known}`, { code: 4002, title: "CAPABILITY_NOT_FOUND" });
    }
    return id;
  }
  /**
   * The params that a model's arguments are.
   *
   * @param given the arguments as the model gave them: an object, or its JSON text
   * @throws Refused with code 4001 for arguments that are none
   */
  params(tool: string, given: unknown): unknown {
    const value = typeof given === "string" ? parsed(given) : (given ?? {});
    if (!this.#wrapped.has(tool)) {
      return value;
    }
    // A tool's arguments are always an object; params that are none are a member of it.
    if (!isRecord(value) || !("value" in value)) {
      throw new Refused(`the arguments of ${tool} have no member "value"`, { code: 4001, title: "BAD_REQUEST" });
    }
    return value["value"];
  }
}

/** The tools of the sidecar's document. */
export function toolsOf(document: unknown): Tools {
  if (!isRecord(document) || !Array.isArray(document["tools"]) || !isRecord(document["names"])) {
    throw new TypeError("the sidecar's answer has no tools and names");
  }
  return new Tools(document["tools"], document["names"], Array.isArray(document["wrapped"]) ? document["wrapped"] : []);
}

function parsed(text: string): unknown {
  try {
    return text === "" ? {} : parse(text);
  } catch (error) {
    throw new Refused(`the arguments are not JSON: ${error instanceof Error ? error.message : error}`, { code: 4001, title: "BAD_REQUEST" });
  }
}
