// Calls `com.acme.translate` through generated code, and prints how that ended.
import { CapdError, Client } from "capd";
import { translate } from "./translator.js";

const client = new Client();
try {
  console.log(JSON.stringify({ outcome: "result", value: await translate(client, { text: "hello" }) }));
} catch (error) {
  if (!(error instanceof CapdError)) throw error;
  console.log(JSON.stringify({ outcome: error.outcome, code: error.code }));
}
client.close();
