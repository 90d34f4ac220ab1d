/** Finds the sidecar: an argument, the environment, or the default place. */

import { readFileSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";
import process from "node:process";

/** Where a sidecar listens: a unix socket, or a port on loopback with a token. */
export type Address = { readonly path: string } | { readonly host: string; readonly port: number; readonly token: string | undefined };

type Environment = Readonly<Record<string, string | undefined>>;

/**
 * The sidecar's address. The first of these wins: `address`; `CAPD_SOCKET`; `CAPD_HTTP`; the socket where capd puts it by
 * itself. A token is for HTTP on TCP: `token`, else `CAPD_TOKEN`, else the file that `CAPD_TOKEN_FILE` names.
 *
 * @throws TypeError for an address that is no place of a sidecar
 */
export function find(address?: string, token?: string, environment: Environment = process.env): Address {
  const place = address ?? (environment["CAPD_SOCKET"] || environment["CAPD_HTTP"] || defaultSocket(environment));
  if (!place.includes("://")) {
    return { path: place };
  }
  const url = parsed(place);
  if (url?.protocol === "unix:") {
    return { path: decodeURIComponent(url.pathname) };
  }
  // The URL parser leaves out a port of 80.
  const port = url?.port || (/:80\/?$/.test(place) ? "80" : "");
  if (url?.protocol !== "http:" || port === "" || !["", "/"].includes(url.pathname) || url.search || url.hash || url.username) {
    throw new TypeError(`${JSON.stringify(place)} is no address of a sidecar: give a socket's path, or http://127.0.0.1:PORT`);
  }
  const host = url.hostname.replace(/^\[|\]$/g, "");
  if (!LOOPBACK.includes(host)) {
    throw new TypeError(
      `${JSON.stringify(place)} is not on this machine: an agent speaks to the sidecar beside it, on 127.0.0.1, ::1 or localhost`,
    );
  }
  return { host, port: Number(port), token: token ?? tokenOf(environment) };
}

/** The header `Host`. */
export function authority(address: Address): string {
  if ("path" in address) {
    return "localhost";
  }
  return `${address.host.includes(":") ? `[${address.host}]` : address.host}:${address.port}`;
}

/** The address for people. */
export function shown(address: Address): string {
  return "path" in address ? address.path : `http://${authority(address)}`;
}

function parsed(place: string): URL | undefined {
  try {
    return new URL(place);
  } catch {
    return undefined;
  }
}

function tokenOf(environment: Environment): string | undefined {
  const file = environment["CAPD_TOKEN_FILE"];
  return environment["CAPD_TOKEN"] || (file ? readFileSync(file, "utf8").trim() : undefined);
}

function defaultSocket(environment: Environment): string {
  const state = environment["XDG_STATE_HOME"] || join(environment["HOME"] || homedir(), ".local/state");
  return join(state, "capd/capd.sock");
}

const LOOPBACK = ["localhost", "127.0.0.1", "::1"];
