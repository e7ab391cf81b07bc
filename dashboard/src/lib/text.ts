/** Text of anybody: message ids and reasons may hold any bytes. */

/** A piece of text: shown as it is, or an escape in place of what has no look of its own or moves others about. */
export interface Piece {
  text: string;
  escaped: boolean;
}

// Controls, format characters (also such as turn the direction), lone surrogates, private use,
// unassigned ones, and spaces and line ends other than the plain space.
const INVISIBLE = /[\p{C}\p{Zl}\p{Zp}]|(?! )\p{Zs}/u;

// Spaces that a page swallows: at an end, and after another one.
const SPACES = /^ +| +$|(?<= ) +/g;

function escape(character: string): string {
  const code = character.codePointAt(0) ?? 0;
  if (character === "\n") return "\\n";
  if (character === "\t") return "\\t";
  if (character === "\r") return "\\r";
  if (code < 0x100) return `\\x${code.toString(16).padStart(2, "0")}`;
  return `\\u{${code.toString(16)}}`;
}

/** Text in pieces in which nothing is invisible; what matches `also` is shown as an escape, too. */
export function pieces(text: string, also?: RegExp): Piece[] {
  const found: Piece[] = [];
  const more = new Set<number>();
  for (const { index, 0: run } of also ? text.matchAll(also) : [])
    for (let at = index; at < index + run.length; at++) more.add(at);
  let at = 0;
  for (const character of text) {
    const escaped = more.has(at) || INVISIBLE.test(character);
    at += character.length;
    const shown = escaped ? escape(character) : character;
    const last = found.at(-1);
    if (last?.escaped === escaped) last.text += shown;
    else found.push({ text: shown, escaped });
  }
  return found;
}

/** Text in which nothing is invisible. */
export function printable(text: string): string {
  return pieces(text)
    .map((piece) => piece.text)
    .join("");
}

/** Bytes in pieces: printable ASCII as it is, all else as \xNN. */
export function bytePieces(base64: string): Piece[] {
  const found: Piece[] = [];
  for (const character of atob(base64)) {
    const escaped = character < " " || character > "~";
    const shown = escaped ? escape(character) : character;
    const last = found.at(-1);
    if (last?.escaped === escaped) last.text += shown;
    else found.push({ text: shown, escaped });
  }
  return found;
}

export interface MessageIdFields {
  message_id: string | null;
  message_id_base64: string | null;
}

/** The pieces of a message id; null where it is unknown. */
export function messageIdPieces(fields: MessageIdFields): Piece[] | null {
  if (fields.message_id !== null) return pieces(fields.message_id, SPACES);
  return fields.message_id_base64 === null ? null : bytePieces(fields.message_id_base64);
}
