import { useSyncExternalStore } from "react";

export const THEMES = ["system", "light", "dark"] as const;
export type Theme = (typeof THEMES)[number];

const KEY = "acker-theme";
const system = matchMedia("(prefers-color-scheme: dark)");
const listeners = new Set<() => void>();
const tell = () => listeners.forEach((listener) => listener());
system.addEventListener("change", tell);

function theme(): Theme {
  const chosen = document.documentElement.dataset.theme;
  return chosen === "light" || chosen === "dark" ? chosen : "system";
}

/** The theme that is drawn: the one that was chosen by hand, else the system's. */
function drawn(): "light" | "dark" {
  const chosen = theme();
  return chosen === "system" ? (system.matches ? "dark" : "light") : chosen;
}

/** Chooses a theme by hand, or gives the choice back to the system. */
export function setTheme(chosen: Theme): void {
  if (chosen === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = chosen;
  try {
    localStorage.setItem(KEY, chosen);
  } catch {
    // Storage may be forbidden: then it lasts as long as the page.
  }
  tell();
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export const useTheme = (): Theme => useSyncExternalStore(subscribe, theme);
export const useDrawnTheme = (): "light" | "dark" => useSyncExternalStore(subscribe, drawn);
