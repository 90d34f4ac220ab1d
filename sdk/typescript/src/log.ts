/** Where an agent writes what its operator wants to know. `console` is one. */
export interface Logger {
  debug(...parts: unknown[]): void;
  info(...parts: unknown[]): void;
  warn(...parts: unknown[]): void;
  error(...parts: unknown[]): void;
}

/** Warnings and errors on stderr, nothing else. */
export const QUIET: Logger = {
  debug: () => {},
  info: () => {},
  warn: (...parts) => console.warn("capd:", ...parts),
  error: (...parts) => console.error("capd:", ...parts),
};
