// An agent that reviews the numbers of a report: com.example.review. It has each claim computed by another agent.

import { Agent, Client, Failed } from "capd";

interface Claim {
  text: string;
  expression: string;
  value: string;
}

interface Finding {
  holds: boolean;
  computed: string;
}

/** A code of the calculator's own. */
const NOT_ARITHMETIC = 6000;

const text = (maxLength: number) => ({ type: "string", minLength: 1, maxLength });

const inputSchema = {
  type: "object",
  properties: {
    claims: {
      type: "array",
      minItems: 1,
      maxItems: 50,
      items: {
        type: "object",
        properties: { text: text(500), expression: text(200), value: text(100) },
        required: ["text", "expression", "value"],
        additionalProperties: false,
      },
    },
  },
  required: ["claims"],
  additionalProperties: false,
};

const outputSchema = {
  type: "object",
  properties: {
    findings: {
      type: "array",
      items: {
        type: "object",
        properties: { holds: { type: "boolean" }, computed: { type: "string" } },
        required: ["holds", "computed"],
        additionalProperties: false,
      },
    },
  },
  required: ["findings"],
  additionalProperties: false,
};

const client = new Client();
const agent = new Agent();

// Literal schemas, so the params are of any type here: the sidecar has checked them against the input schema.
agent.provide(
  "com.example.review",
  {
    version: "1.0.0",
    description: "Computes each claim of a report, and says which of them hold.",
    idempotent: true,
    input: inputSchema,
    output: outputSchema,
  },
  async (params, call) => {
    const { claims } = params as { claims: Claim[] };
    const findings: Finding[] = [];
    for (const claim of claims) {
      findings.push(await review(claim, call.signal));
      call.progress(Math.round((100 * findings.length) / claims.length));
    }
    return { findings };
  },
);

async function review({ expression, value }: Claim, signal: AbortSignal): Promise<Finding> {
  try {
    const result = await client.call<{ value: string }>("com.example.calculate", { expression }, { signal });
    return { holds: result.value === value, computed: result.value };
  } catch (error) {
    // The calculator ran and says that this is no arithmetic. Whatever else is wrong is not a finding about the claim.
    if (error instanceof Failed && error.code === NOT_ARITHMETIC) {
      return { holds: false, computed: error.message };
    }
    throw error;
  }
}

await agent.run();
