import { oneOf, useUrl } from "./url";

export const RATES = ["1", "5", "15", "60"] as const;

const DEFAULTS = { rate: "1", paused: "" };

export interface Refresh {
  paused: boolean;
  /** Seconds between two updates of the view. */
  seconds: number;
  /** For a query: milliseconds, or false while paused. */
  interval: number | false;
  pause: (paused: boolean) => void;
  setSeconds: (seconds: string) => void;
}

/** How often a view is renewed, and whether it is paused: in the URL, as all of its state. */
export function useRefresh(): Refresh {
  const [state, change] = useUrl(DEFAULTS);
  const seconds = Number(oneOf(state.rate, RATES));
  const paused = state.paused === "1";
  return {
    paused,
    seconds,
    interval: paused ? false : seconds * 1000,
    pause: (next) => change({ paused: next ? "1" : "" }, true),
    setSeconds: (next) => change({ rate: next }, true),
  };
}
