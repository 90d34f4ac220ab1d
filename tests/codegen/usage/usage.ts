// What a caller writes, and what the compiler must refuse.
import type { Client } from "capd";
import { reviewPr, type Capabilities, type ReviewPrRequest } from "./pr-reviewer.js";
import type { EventRequest, EverythingResponse, TreeRequest } from "./shapes.js";

export async function use(client: Client): Promise<void> {
  const answer = await reviewPr(client, { prUrl: "https://example.org/1", severity: "high" }, { key: "a", timeout: 1_000 });
  const verdict: "approve" | "request-changes" | "comment" = answer.verdict;
  console.log(verdict, answer.summary.length);
  // @ts-expect-error a severity that is not declared
  await reviewPr(client, { prUrl: "https://example.org/1", severity: "higher" });
  // @ts-expect-error a member that is required is missing
  await reviewPr(client, { severity: "high" });
  // @ts-expect-error a member that is not declared
  await reviewPr(client, { prUrl: "", severity: "low", other: 1 });
  // @ts-expect-error what the code was generated from is not the caller's to say
  await reviewPr(client, { prUrl: "", severity: "low" }, { builtAgainst: {} });
}

export const request: Capabilities["review-pr"]["request"] = { prUrl: "", severity: "med" } satisfies ReviewPrRequest;
export const tree: TreeRequest = { label: "a", parent: null, children: [{ label: "b", parent: null }] };
export const event: EventRequest = { kind: "gone", reason: "moved" };
// @ts-expect-error a created event has a name
export const nameless: EventRequest = { kind: "created" };
export const both: EverythingResponse = { id: "a", extra: 1, count: 2 };
