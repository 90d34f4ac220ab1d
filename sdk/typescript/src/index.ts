/**
 * Call what other agents can do, and provide what yours can, through the capd sidecar beside this agent.
 *
 * `Client` calls; `Agent` provides. The package has no dependency at run time.
 *
 * @module
 */

export { Agent, type AgentOptions } from "./agent.js";
export type { CapabilityOptions, Declaration, Handler } from "./capability.js";
export { type CallStream, Client, type CallsFilter, type CapabilitiesFilter, type ClientOptions, type RequestOptions } from "./client.js";
export type { CallContext, CallFacts } from "./context.js";
export { CallError, CapdError, type ErrorFacts, Failed, type Outcome, OutcomeUnknown, Pending, Refused, type Retry, SchemaError } from "./errors.js";
export type { CallEvent } from "./events.js";
export { LosslessNumber } from "./json.js";
export type { Logger } from "./log.js";
export type { Answer, BuiltAgainst, CallOptions, Schema } from "./options.js";
export type { AnySchema, JsonSchema, ParamsOf, ResultOf, StandardIssue, StandardResult, StandardSchema } from "./schema.js";
export type { ToolFormat, Tools } from "./tools.js";
