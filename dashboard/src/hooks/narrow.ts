import { useSyncExternalStore } from "react";

const query = matchMedia("(width <= 700px)");

function subscribe(listener: () => void): () => void {
  query.addEventListener("change", listener);
  return () => query.removeEventListener("change", listener);
}

/** Whether the page is as narrow as a phone: the same bound as in the style sheet. */
export const useNarrow = (): boolean => useSyncExternalStore(subscribe, () => query.matches);
