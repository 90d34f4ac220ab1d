// A stub of the package capd for compiling generated code: sdk/CONTRACT.md, as declarations.
export interface Schema {
  readonly sha256: string;
  readonly json: string;
}
export interface BuiltAgainst {
  readonly input?: Schema | undefined;
  readonly output?: Schema | undefined;
}
export interface CallOptions {
  version?: string | undefined;
  timeout?: number | undefined;
  key?: string | undefined;
  thread?: string | undefined;
  affinity?: string | undefined;
  builtAgainst?: BuiltAgainst | undefined;
  signal?: AbortSignal | undefined;
}
export declare class Client {
  call<Result = unknown>(name: string, params?: unknown, options?: CallOptions): Promise<Result>;
}
