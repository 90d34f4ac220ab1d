/** Schemas of params and results: those of a library that speaks Standard Schema, or literal JSON Schemas. */

import { SchemaError } from "./errors.js";
import { isRecord } from "./problem.js";

/** A literal JSON Schema. */
export type JsonSchema = boolean | { readonly [keyword: string]: unknown };

/** A schema of a library such as Zod, Valibot or ArkType (https://standardschema.dev). */
export interface StandardSchema<Input = unknown, Output = Input> {
  readonly "~standard": {
    readonly version: 1;
    readonly vendor: string;
    readonly validate: (value: unknown) => StandardResult<Output> | Promise<StandardResult<Output>>;
    readonly types?: { readonly input: Input; readonly output: Output } | undefined;
    /** The JSON Schema of what comes in and of what comes out, where the library can say it. */
    readonly jsonSchema?:
      | {
          readonly input: (options: { readonly target: "draft-2020-12" }) => Record<string, unknown>;
          readonly output: (options: { readonly target: "draft-2020-12" }) => Record<string, unknown>;
        }
      | undefined;
  };
}

/** What validation gives: a value, or issues. */
export type StandardResult<Output> =
  | { readonly value: Output; readonly issues?: undefined }
  | { readonly issues: readonly StandardIssue[] };

/** One thing that is wrong with a value. */
export interface StandardIssue {
  readonly message: string;
  readonly path?: readonly (PropertyKey | { readonly key: PropertyKey })[] | undefined;
}

/** Either kind of schema. */
export type AnySchema = StandardSchema<any, any> | JsonSchema;

/** The values that a handler gets for its params: those of a Standard Schema; `any` for a literal schema or none. */
export type ParamsOf<Schema> = Schema extends StandardSchema<any, infer Output> ? Output : any;

/** The values that a handler may return: those that a Standard Schema takes; `unknown` for a literal schema or none. */
export type ResultOf<Schema> = Schema extends StandardSchema<infer Input, any> ? Input : unknown;

/** Whether a schema is one of a library. */
export function isStandard(schema: unknown): schema is StandardSchema<any, any> {
  return (typeof schema === "object" || typeof schema === "function") && schema !== null && "~standard" in schema;
}

/**
 * The JSON Schema that is declared.
 *
 * @param place the capability and the side, for errors
 * @throws SchemaError where a library's schema has no JSON Schema and none stands next to it
 */
export function declared(schema: AnySchema | undefined, literal: JsonSchema | undefined, side: "input" | "output", place: string): JsonSchema | undefined {
  if (literal !== undefined) {
    return literal;
  }
  if (schema === undefined || !isStandard(schema)) {
    return schema;
  }
  const { jsonSchema, vendor } = schema["~standard"];
  if (jsonSchema === undefined) {
    throw new SchemaError(`${place}: this schema of ${vendor} cannot say its JSON Schema; give that as ${side}Schema`);
  }
  try {
    return jsonSchema[side]({ target: "draft-2020-12" });
  } catch (error) {
    throw new SchemaError(`${place}: ${vendor} has no JSON Schema for it: ${error instanceof Error ? error.message : error}`, { cause: error });
  }
}

/** A violation as the sidecar writes them. */
export interface Violation {
  readonly path: string;
  readonly message: string;
  readonly keyword: string;
}

/** The issues as violations. */
export function violations(issues: readonly StandardIssue[]): Violation[] {
  return issues.map(({ message, path = [] }) => ({
    path: path.map((part) => `/${String(isRecord(part) ? part["key"] : part).replaceAll("~", "~0").replaceAll("/", "~1")}`).join(""),
    message,
    keyword: "type",
  }));
}
