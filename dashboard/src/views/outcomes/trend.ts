/** Where a count goes: its halves compared. */

/** Least that one half has to have more of than the other, of which nobody would say that they are alike. */
const LEAST = 0.25;

export function trend(counts: readonly number[]): {
  early: number;
  late: number;
  words: "rising" | "falling" | "steady" | "none";
} {
  const middle = Math.ceil(counts.length / 2);
  const sum = (part: readonly number[]) => part.reduce((all, one) => all + one, 0);
  const [early, late] = [sum(counts.slice(0, middle)), sum(counts.slice(middle))];
  const words =
    early + late === 0
      ? "none"
      : late > early * (1 + LEAST)
        ? "rising"
        : early > late * (1 + LEAST)
          ? "falling"
          : "steady";
  return { early, late, words };
}
