/** Turns an answer that is no result into the error of its outcome (RFC 9457). */

import { type CapdError, OutcomeUnknown, Refused, classOf } from "./errors.js";
import { parse, stringify } from "./json.js";
import type { Response } from "./transport.js";

/** The error that a response with a status of 300 or above stands for. */
export function ofResponse(response: Response, key?: string, call?: string): CapdError {
  return ofProblem(problemOf(response), response.status, response.header("capd-call") ?? call, key);
}

/** The error of a problem document. */
export function ofProblem(document: unknown, answerStatus?: number, call?: string, key?: string): CapdError {
  const problem = isRecord(document) ? document : { detail: `an error that is no problem document: ${stringify(document)}`.slice(0, 200) };
  const status = answerStatus ?? (typeof problem["status"] === "number" ? problem["status"] : undefined);
  // Without a known outcome only a status that blames the request says that nothing was done.
  const fallback = status !== undefined && status >= 300 && status < 500 ? Refused : OutcomeUnknown;
  const kind = classOf(problem["outcome"]) ?? fallback;
  const title = typeof problem["title"] === "string" ? problem["title"] : "";
  return new kind(String(problem["detail"] ?? (title || `HTTP status ${status ?? "unknown"}`)), {
    code: typeof problem["code"] === "number" ? problem["code"] : 0,
    title,
    details: problem["details"] ?? undefined,
    call: typeof problem["call"] === "string" && problem["call"] !== "" ? problem["call"] : call,
    retry: typeof problem["retry"] === "string" ? problem["retry"] : "no",
    status,
    key,
  });
}

/** Whether a value is an object of JSON with members. */
export function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function problemOf(response: Response): unknown {
  try {
    const problem = parse(response.body);
    if (isRecord(problem)) {
      return problem;
    }
  } catch {
    // Something in between has answered, or HTTP itself refused the request.
  }
  const text = new TextDecoder().decode(response.body.subarray(0, 200)).trim();
  return { detail: `HTTP status ${response.status}${text ? `: ${text}` : ""}` };
}
