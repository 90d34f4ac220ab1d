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
