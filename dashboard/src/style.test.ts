import { expect, test } from "vitest";
import css from "./style.css?raw";

/** What words are written in, and what they are written on. */
const WORDS = [
  "ink",
  "faint",
  "link",
  "warn-ink",
  "critical-ink",
  "tracked",
  "failed",
  "expired",
  "rejected",
];
const GROUNDS = ["ground", "panel", "warn-ground", "critical-ground", "selected"];

const COLOURS = new Map(
  [...css.matchAll(/--([\w-]+): light-dark\(#(\w{6}), #(\w{6})\)/g)].map(([, name, light, dark]) => [
    name ?? "",
    [light ?? "", dark ?? ""] as const,
  ]),
);

/** The relative luminance of a colour (WCAG 2). */
function luminance(colour: string): number {
  const [red = 0, green = 0, blue = 0] = [0, 2, 4].map((at) => {
    const part = parseInt(colour.slice(at, at + 2), 16) / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

function contrast(one: string, other: string): number {
  const [light = 0, dark = 0] = [luminance(one), luminance(other)].sort((a, b) => b - a);
  return (light + 0.05) / (dark + 0.05);
}

test("words are told from every ground, in the light and in the dark", () => {
  const faint = WORDS.flatMap((word) =>
    GROUNDS.flatMap((ground) =>
      [0, 1].map((theme) => {
        const [ink, paper] = [COLOURS.get(word)?.[theme], COLOURS.get(ground)?.[theme]];
        const found = contrast(ink ?? "", paper ?? "");
        return found >= 4.5 ? "" : `${word} on ${ground}: ${found.toFixed(2)}`;
      }),
    ),
  );
  expect(faint.filter((one) => one !== "")).toEqual([]);
});
