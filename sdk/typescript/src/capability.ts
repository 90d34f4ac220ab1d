/** What an agent serves: a handler with its declaration. */

import type { CallContext } from "./context.js";
import { CallError } from "./errors.js";
import { type AnySchema, type JsonSchema, type ParamsOf, type ResultOf, type StandardSchema, declared, isStandard, violations } from "./schema.js";

/** What the sidecar is told about a capability, as in `capabilities.yaml`. */
export interface Declaration {
  readonly name: string;
  readonly version: string;
  readonly [key: string]: unknown;
}

/** How a capability is declared. */
export interface CapabilityOptions<Input extends AnySchema | undefined = undefined, Output extends AnySchema | undefined = undefined> {
  /** Its version; 1.0.0 unless set. */
  version?: string | undefined;
  /** What it does, for people and for language models. */
  description?: string | undefined;
  /** Whether a second execution does no harm. */
  idempotent?: boolean | undefined;
  /** `by-id`: all providers of this version remember the ids of calls in one store that they share. The key is `call.caller` and `call.id`. */
  idempotency?: "by-id" | undefined;
  /** How many milliseconds a call takes at most. */
  timeout?: number | undefined;
  /** The permissions that its callers need. */
  permissions?: readonly string[] | undefined;
  /** The schema of its params: a Standard Schema, whose values the handler gets, or a literal JSON Schema. */
  input?: Input;
  /** The schema of its result, of either kind. */
  output?: Output;
  /** The JSON Schema to declare for `input`, where its library cannot say it. */
  inputSchema?: JsonSchema | undefined;
  /** The JSON Schema to declare for `output`, where its library cannot say it. */
  outputSchema?: JsonSchema | undefined;
  /** Further keys of a declaration as in `capabilities.yaml`, such as `rateLimit`. */
  more?: Readonly<Record<string, unknown>> | undefined;
}

/** A handler: gets the params and the call; its result, or the promise of it, is the answer. */
export type Handler<Input = undefined, Output = undefined> = (params: ParamsOf<Input>, call: CallContext) => ResultOf<Output> | Promise<ResultOf<Output>>;

/** One version of one capability: its declaration and its handler. */
export class Capability {
  readonly declaration: Declaration;
  readonly #input: StandardSchema | undefined;
  readonly #output: StandardSchema | undefined;
  readonly #handler: (params: any, call: CallContext) => unknown;

  /** @throws SchemaError for a schema that cannot be declared */
  constructor(name: string, options: CapabilityOptions<AnySchema | undefined, AnySchema | undefined>, handler: (params: any, call: CallContext) => unknown) {
    const version = options.version ?? "1.0.0";
    const place = `${name}:${version}`;
    const entries = {
      description: options.description,
      idempotent: options.idempotent === true ? true : undefined,
      idempotency: options.idempotency,
      timeoutMs: options.timeout === undefined ? undefined : Math.round(options.timeout),
      permissions: options.permissions,
      inputSchema: declared(options.input, options.inputSchema, "input", `${place}: input`),
      outputSchema: declared(options.output, options.outputSchema, "output", `${place}: output`),
      ...options.more,
    };
    this.declaration = { name, version, ...Object.fromEntries(Object.entries(entries).filter(([, value]) => value !== undefined)) };
    this.#input = isStandard(options.input) ? options.input : undefined;
    this.#output = isStandard(options.output) ? options.output : undefined;
    this.#handler = handler;
  }

  /** `name:version`. */
  get id(): string {
    return `${this.declaration.name}:${this.declaration.version}`;
  }

  /** Runs the handler. Throws what it throws, and CallError 4004 for params that its schema does not take. */
  async run(call: CallContext): Promise<unknown> {
    let params = call.params;
    if (this.#input !== undefined) {
      const checked = await this.#input["~standard"].validate(params);
      if (checked.issues !== undefined) {
        throw new CallError(4004, "params do not fit the handler's schema", { violations: violations(checked.issues), schema_side: "request" });
      }
      params = checked.value;
    }
    const result = await this.#handler(params, call);
    if (this.#output === undefined) {
      return result;
    }
    const checked = await this.#output["~standard"].validate(result);
    if (checked.issues !== undefined) {
      throw new TypeError(`the result does not fit the output schema: ${JSON.stringify(violations(checked.issues))}`);
    }
    return checked.value;
  }
}
