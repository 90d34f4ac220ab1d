/** What a caller gives with a call, and what it gets. Needs no types but those of the language and the web. */

/** A schema document, byte for byte, and the SHA-256 of its UTF-8 bytes in lower-case hexadecimal. */
export interface Schema {
  readonly sha256: string;
  readonly json: string;
}

/** The schemas that a caller was generated from. */
export interface BuiltAgainst {
  readonly input?: Schema | undefined;
  readonly output?: Schema | undefined;
}

/** What a call may have beside its params. */
export interface CallOptions {
  /** A range of versions, `>=1.0.0 <2.0.0`. Without it the newest version is called. */
  version?: string | undefined;
  /** Milliseconds. Without it the time that the capability declares. */
  timeout?: number | undefined;
  /**
   * An idempotency key of 1 to 255 bytes. The same key and params never run twice: they join the call, or give its recorded
   * result. Without it each call gets a key of its own, under which it is retried when a connection breaks.
   */
  key?: string | undefined;
  /** The turn of a conversation that the call belongs to. */
  thread?: string | undefined;
  /** Idempotent calls with the same text, 1 to 255 bytes, go to the same provider. */
  affinity?: string | undefined;
  /** The schemas that the caller was generated from: when the provider's do not fit them, the call is refused with 4902. */
  builtAgainst?: BuiltAgainst | undefined;
  /** Aborting it cancels the call at the provider; the promise rejects with the signal's reason. */
  signal?: AbortSignal | undefined;
  /** The provider's DID, where only that one will do. */
  to?: string | undefined;
  /**
   * How many milliseconds the sidecars remember the call and its key, which bounds the call's time too. Unless set a day for
   * your key, an hour without one.
   */
  ttl?: number | undefined;
  /** The W3C trace that the call belongs to. */
  traceparent?: string | undefined;
}

/** A result with what the sidecar says about it. */
export interface Answer<Result = unknown> {
  readonly value: Result;
  /** The call's id. */
  readonly call: string | undefined;
  /** The capability id that was chosen. */
  readonly capability: string | undefined;
  /** How many milliseconds the provider took. */
  readonly executionMs: number | undefined;
  /** Whether the recorded result of an earlier call with the same key was given. */
  readonly replayed: boolean;
  /** Whether the chosen version is deprecated. */
  readonly deprecated: boolean;
}
