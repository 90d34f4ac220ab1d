// Others of this machine and other sites: each must get nothing of the page's.
import assert from "node:assert/strict";
import http from "node:http";

/** What a request gets, without a browser that would keep rules of its own. */
export function raw(base, { method = "GET", path = "/", headers = {}, body } = {}) {
  const { hostname, port } = new URL(base);
  return new Promise((resolve, reject) => {
    const request = http.request({ hostname, port, method, path, headers: { host: `${hostname}:${port}`, ...headers }, agent: false }, async (answer) => {
      let text = "";
      answer.setEncoding("utf8");
      const done = () => { resolve({ status: answer.statusCode, headers: answer.headers, text }); answer.destroy(); };
      answer.on("data", (piece) => { text += piece; if (answer.headers["content-type"] === "text/event-stream") done(); });
      answer.on("end", done);
    });
    request.on("error", reject);
    request.end(body);
  });
}

const DATA = ["/data/overview", "/data/events", "/data/self", "/data/calls", "/data/capabilities", "/data/policy", "/data/audit", "/data/audit/export", "/data/configuration", "/data/requires"];
const ACTIONS = ["/act/call", "/act/cancel", "/act/reload", "/act/drain", "/act/log", "/act/ping"];

export async function attacks(base, token) {
  const { host, origin } = new URL(base);
  const json = { "content-type": "application/json", origin };
  const opened = await raw(base, { method: "POST", path: "/session", headers: json, body: JSON.stringify({ token }) });
  assert.equal(opened.status, 200, opened.text);
  const set = opened.headers["set-cookie"][0];
  assert.match(set, /; HttpOnly/);
  assert.match(set, /; SameSite=Strict/);
  const own = { cookie: set.split(";")[0], "capd-page-key": JSON.parse(opened.text).key };
  assert.equal((await raw(base, { path: "/data/self", headers: own })).status, 200);

  // No token, another token, and half of a session.
  for (const body of ["", "{}", `{"token":""}`, `{"token":"${"A".repeat(43)}"}`, `{"token":["${token}"]}`]) {
    const refused = await raw(base, { method: "POST", path: "/session", headers: json, body });
    assert.ok([400, 403].includes(refused.status), `${body}: ${refused.status}`);
    assert.equal(refused.headers["set-cookie"], undefined);
  }
  for (const path of DATA) {
    assert.equal((await raw(base, { path })).status, 401, path);
    assert.equal((await raw(base, { path, headers: { cookie: own.cookie } })).status, 401, path);
    assert.equal((await raw(base, { path, headers: { "capd-page-key": own["capd-page-key"] } })).status, 401, path);
  }
  // A form or a script of another site brings the cookie at most: no key, or another origin.
  for (const path of ACTIONS) {
    const forged = { method: "POST", path, body: `{"capability":"com.acme.shout"}` };
    const cases = [
      [{ ...json, cookie: own.cookie }, 401],
      [{ ...own, "content-type": "application/json" }, 403],
      [{ ...own, "content-type": "text/plain", origin: "null" }, 403],
      [{ ...own, origin: "https://evil.example", "content-type": "application/json" }, 403],
      [{ ...own, origin: `http://evil.example:${new URL(base).port}` }, 403],
      [{ ...own, ...json, "sec-fetch-site": "same-site" }, 403],
      [{ ...own, ...json, "sec-fetch-site": "cross-site" }, 403],
    ];
    for (const [headers, status] of cases) assert.equal((await raw(base, { ...forged, headers })).status, status, `${path} ${JSON.stringify(headers)}`);
    assert.equal((await raw(base, { path, headers: own })).status, 405, path);
  }
  // A name that is rebound to this machine.
  for (const name of ["evil.example", `evil.example:${new URL(base).port}`, "127.0.0.1.evil.example", "10.0.0.1"]) {
    for (const path of ["/", "/app.js", "/data/self"]) {
      assert.equal((await raw(base, { path, headers: { ...own, host: name } })).status, 421, `${name} ${path}`);
    }
  }
  // What stands in a path or a parameter stays there.
  for (const path of ["/data/capabilities/..%2F..%2Fopenapi.json", "/data/calls/..%2Fself", "/data/capabilities/a%20b", "/data/calls/x%0d%0ahost:%20y", "/../Cargo.toml", "/views/../../mod.rs"]) {
    const answer = await raw(base, { path, headers: own });
    assert.ok([400, 404].includes(answer.status), `${path}: ${answer.status}`);
  }
  const foul = await raw(base, { method: "POST", path: "/act/call", headers: { ...own, ...json }, body: `{"capability":"com.acme.shout/../../provide","params":{}}` });
  assert.equal(foul.status, 400, foul.text);
  // Every answer carries the policy.
  for (const path of ["/", "/app.js", "/style.css", "/data/self", "/nothing"]) {
    const { headers } = await raw(base, { path });
    const policy = headers["content-security-policy"];
    assert.match(policy, /default-src 'none'/, path);
    assert.doesNotMatch(policy, /unsafe|\*|data:/, path);
    assert.equal(headers["x-frame-options"], "DENY", path);
    assert.equal(headers["referrer-policy"], "no-referrer", path);
    assert.equal(headers["x-content-type-options"], "nosniff", path);
    assert.equal(headers["access-control-allow-origin"], undefined, path);
  }
  assert.ok(host);
}
