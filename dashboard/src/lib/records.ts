/** Finds of a message id, and how somebody asks for them. */

import type { Schemas } from "../api/client";

export type Records = Schemas["Records"];
export type FoundAttempt = Schemas["FoundAttempt"];

/** A message id for the service. */
export type MessageIdQuery = { message_id: string } | { message_id_base64: string };

/** A question: a message id as its text, or its bytes behind `base64:`. */
export function messageIdQuery(text: string): MessageIdQuery {
  const bytes = /^\s*base64:(.*)$/s.exec(text);
  return bytes ? { message_id_base64: (bytes[1] ?? "").trim() } : { message_id: text };
}

/**
 * The same as text for the box; bytes where it is no text, would be taken for something else, or has lines: a box
 * has one. A caller that knows the text alone may leave the bytes out.
 */
export function messageIdText(of: { message_id: string | null; message_id_base64: string | null }): string {
  const { message_id: text, message_id_base64: bytes } = of;
  return text !== null && text !== "" && !/^\s*base64:|[\r\n]/.test(text)
    ? text
    : `base64:${bytes || encoded(text ?? "")}`;
}

/** A text that begins as bytes do, as a message id that is this very text; null for every other text. */
export function literally(text: string): string | null {
  if (!/^\s*base64:/.test(text)) return null;
  return `base64:${encoded(text)}`;
}

function encoded(text: string): string {
  const bytes = new TextEncoder().encode(text);
  return btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
}

/** Where a record is looked for. */
export function findPath(topology: string, of: Parameters<typeof messageIdText>[0]): string {
  return `/t/${topology}/find?${new URLSearchParams({ id: messageIdText(of) }).toString()}`;
}

/** The anchor that a text may be: an odd number of signed 64 bits. */
export function anchorIn(text: string): string | null {
  const trimmed = text.trim();
  if (!/^-?[0-9]{1,19}$/.test(trimmed)) return null;
  const number = BigInt(trimmed);
  return BigInt.asIntN(64, number) === number && BigInt.asUintN(1, number) === 1n ? number.toString() : null;
}

/** Several answers, each with the cursor of the one before, as one. */
export function addUp(answers: readonly Records[]): Pick<Records, "records" | "looked" | "of" | "cursor"> {
  const last = answers.at(-1);
  const spouts = [...new Set(answers.flatMap((one) => one.records.map((record) => record.spout)))].sort();
  const records = spouts.map((spout) => {
    const parts = answers.flatMap((one) => one.records.filter((record) => record.spout === spout));
    const letters = new Map(parts.flatMap((part) => part.dead_letters.map((one) => [one.id, one])));
    return {
      spout,
      attempts: once(parts.flatMap((part) => part.attempts)),
      dead_letters: [...letters.values()],
    };
  });
  return { records, looked: last?.looked ?? 0, of: last?.of ?? 0, cursor: last?.cursor ?? null };
}

/** Each attempt once, in order: its tree and its row may both tell of it. */
function once(attempts: readonly FoundAttempt[]): FoundAttempt[] {
  const found = new Map<string, FoundAttempt>();
  const told = new Map<string, Map<number | null, FoundAttempt>>();
  for (const one of attempts) {
    if (one.anchor === null) {
      const byNumber = told.get(end(one)) ?? new Map<number | null, FoundAttempt>();
      told.set(end(one), byNumber.set(one.number, one));
    } else found.set(one.anchor, { ...one, number: one.number ?? found.get(one.anchor)?.number ?? null });
  }
  const alone: FoundAttempt[] = [];
  for (const [name, byNumber] of told) {
    // Rows of one message id may end at one moment: of these, only a number that all have is known.
    const trees = [...found.values()].filter((one) => one.at !== null && end(one) === name);
    const [row, ...others] = byNumber.values();
    for (const tree of trees)
      found.set(tree.anchor ?? "", {
        ...tree,
        number: tree.number ?? (others.length === 0 ? (row?.number ?? null) : null),
        reason: tree.reason || (row?.reason ?? ""),
      });
    alone.push(...[...byNumber.values()].slice(trees.length));
  }
  return [...found.values(), ...alone].sort((a, b) => began(a) - began(b) || ended(a) - ended(b));
}

const end = (one: FoundAttempt) => `${one.state} ${one.at ?? ""}`;
const ended = (one: FoundAttempt) => (one.at === null ? Number.MAX_VALUE : Date.parse(one.at));
const began = (one: FoundAttempt) => (one.tracked_at === null ? ended(one) : Date.parse(one.tracked_at));
