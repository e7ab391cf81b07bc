// Calls of acker's service, for programs without a library of their own.

const PAUSE = 500;

/** The service has refused a call, and would refuse it again. */
export class Refused extends Error {
  readonly kind: string;

  constructor(problem: { type?: string; detail?: string }) {
    super(problem.detail ?? JSON.stringify(problem));
    this.kind = problem.type ?? "";
  }
}

export const pause = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, PAUSE));

export function headers(more: Record<string, string> = {}): Record<string, string> {
  const token = process.env["ACKER_TOKEN"];
  return { ...(token ? { Authorization: `Bearer ${token}` } : {}), ...more };
}

/** Sends a write until it is answered: the service may be away, or ask to be given time. */
export async function send<T>(method: string, url: string, body: unknown, key: string = crypto.randomUUID()): Promise<T> {
  const own = headers({ "Content-Type": "application/json", "Idempotency-Key": key });
  for (;;) {
    try {
      const answer = await fetch(url, { method, headers: own, body: JSON.stringify(body) });
      const said: unknown = await answer.json();
      if (answer.ok) return said as T;
      if (![429, 503, 507].includes(answer.status)) throw new Refused(said as object);
    } catch (error) {
      if (error instanceof Refused) throw error;
    }
    await pause();
  }
}

/** Reads, and tries again as `send` does. */
export async function get<T>(url: string): Promise<T> {
  for (;;) {
    try {
      const answer = await fetch(url, { headers: headers() });
      const said: unknown = await answer.json();
      if (answer.ok) return said as T;
      if (![429, 503].includes(answer.status)) throw new Refused(said as object);
    } catch (error) {
      if (error instanceof Refused) throw error;
    }
    await pause();
  }
}

/** 64 random bits: ids are strings of decimal digits, for a number of JavaScript has 53 bits. */
export function random(): bigint {
  return BigInt.asIntN(64, crypto.getRandomValues(new BigUint64Array(1))[0] ?? 0n);
}

/** The anchor of a tree that is tracked alone: negative, and odd. */
export function newAnchor(): string {
  return BigInt.asIntN(64, random() | (1n << 63n) | 1n).toString();
}
