/** The service: a client typed by its schema, which sends the token and turns problems into errors. */

import createClient from "openapi-fetch";
import type { components, paths } from "./schema.gen";
import { getToken, tokenRefused } from "./token";

export type Schemas = components["schemas"];

/** The service answered with a problem (RFC 9457). */
export class Problem extends Error {
  constructor(
    readonly status: number,
    readonly kind: string,
    detail: string,
  ) {
    super(detail);
  }
}

/** The service did not answer. */
export class Unreachable extends Error {
  constructor() {
    super("The service does not answer.");
  }
}

/** `fetch` with the token. Throws Unreachable, and notes a token that is refused. */
export async function authorized(input: Request): Promise<Response> {
  const token = getToken();
  if (token !== null) input.headers.set("Authorization", `Bearer ${token}`);
  let response: Response;
  try {
    response = await fetch(input);
  } catch (error) {
    if (input.signal.aborted) throw error;
    throw new Unreachable();
  }
  if (response.status === 401) tokenRefused(token);
  return response;
}

/** The path under which the service is, without a slash at its end: the page says where a proxy put it. */
export const PATH = document.querySelector<HTMLMetaElement>('meta[name="acker-path"]')?.content ?? "";

export const ADDRESS = location.origin + PATH;

export const client = createClient<paths>({ baseUrl: ADDRESS, fetch: authorized });

interface Answer<T> {
  data?: T;
  error?: unknown;
  response: Response;
}

/** The data of an answer. Throws Problem. */
export async function data<T>(call: Promise<Answer<T>>): Promise<T> {
  const { data: found, error, response } = await call;
  if (response.ok && found !== undefined) return found;
  throw problem(response.status, error);
}

/** Waits for an answer that has no body where all is well. Throws Problem. */
export async function ended(call: Promise<Answer<unknown>>): Promise<void> {
  const { error, response } = await call;
  if (!response.ok) throw problem(response.status, error);
}

/** A problem from the body of an answer, whatever that is: something between may have sent it. */
export function problem(status: number, body: unknown): Problem {
  const fields = (typeof body === "object" && body !== null ? body : {}) as Partial<Schemas["Problem"]>;
  const broken = fields.errors?.map((one) => `${one.location.join(".")}: ${one.detail}`).join("; ");
  const detail = fields.detail ?? `The service answered with status ${status}.`;
  return new Problem(
    status,
    fields.type?.replace(/^urn:acker:/, "") ?? "unknown",
    broken ? `${detail} (${broken})` : detail,
  );
}
