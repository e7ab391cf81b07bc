import { expect, test } from "vitest";
import { bytePieces, messageIdPieces, pieces, printable } from "./text";

test("what is invisible or turns the direction is shown as an escape", () => {
  expect(printable("gpj\u202eexe")).toBe("gpj\\u{202e}exe");
  expect(printable("a\n\t\x00\x1b[31m\u00a0\u200b\ufeff")).toBe(
    "a\\n\\t\\x00\\x1b[31m\\xa0\\u{200b}\\u{feff}",
  );
  expect(printable("é 漢字 <b> 😀")).toBe("é 漢字 <b> 😀");
  expect(pieces("a\x00b")).toEqual([
    { text: "a", escaped: false },
    { text: "\\x00", escaped: true },
    { text: "b", escaped: false },
  ]);
});

test("bytes are shown as ASCII and hexadecimal", () => {
  expect(bytePieces(btoa("\xffab\x00"))).toEqual([
    { text: "\\xff", escaped: true },
    { text: "ab", escaped: false },
    { text: "\\x00", escaped: true },
  ]);
});

test("a message id is its text, else its bytes, else unknown", () => {
  expect(messageIdPieces({ message_id: "", message_id_base64: "" })).toEqual([]);
  const shown = (text: string) =>
    messageIdPieces({ message_id: text, message_id_base64: "" })?.map((piece) => piece.text);
  expect(shown("a b")).toEqual(["a b"]);
  expect(shown("  a  b ")).toEqual(["\\x20\\x20", "a ", "\\x20", "b", "\\x20"]);
  expect(shown(" ")).toEqual(["\\x20"]);
  expect(messageIdPieces({ message_id: null, message_id_base64: "YQ==" })).toEqual([
    { text: "a", escaped: false },
  ]);
  expect(messageIdPieces({ message_id: null, message_id_base64: null })).toBeNull();
});
