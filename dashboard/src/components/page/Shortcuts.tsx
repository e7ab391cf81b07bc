/** Shortcuts of the keyboard, and the list of them. */

import { useEffect, useRef, useState } from "react";
import { useNavigate } from "react-router";

/** Milliseconds within which the second key of two is to come. */
const PAIR = 1500;
const KEY = "acker-shortcuts";

const LIST = [
  ["/", "Find a record"],
  ["g t", "All topologies"],
  ["g f", "Failures of the topology"],
  ["g d", "Dead letters of the topology"],
  ["g a", "Activity of the topology"],
  ["g c", "Charts of the topology"],
  ["?", "This list"],
] as const;

const VIEWS: Record<string, string> = { c: "", f: "/outcomes", d: "/dead-letters", a: "/activity" };

/** Whether keys go to where they are typed: to a field, or to a dialog. */
function isTaken({ target, ctrlKey, metaKey, altKey, defaultPrevented }: KeyboardEvent): boolean {
  if (ctrlKey || metaKey || altKey || defaultPrevented) return true;
  if (document.querySelector("dialog[open]") !== null) return true;
  return (
    target instanceof HTMLElement && target.closest("input, textarea, select, [contenteditable]") !== null
  );
}

function isOn(): boolean {
  try {
    return localStorage.getItem(KEY) !== "off";
  } catch {
    return true; // storage may be forbidden
  }
}

/** The button that lists the shortcuts. They can be switched off, because speech input types letters by chance. */
export function Shortcuts({ topology }: { topology: string | undefined }) {
  const navigate = useNavigate();
  const dialog = useRef<HTMLDialogElement>(null);
  const [on, setOn] = useState(isOn);
  const first = useRef(-Infinity);
  useEffect(() => {
    if (!on) return;
    const pressed = (event: KeyboardEvent) => {
      if (isTaken(event)) return;
      const second = event.timeStamp - first.current < PAIR;
      first.current = event.key === "g" ? event.timeStamp : -Infinity;
      const view = VIEWS[event.key];
      if (second && event.key === "t") void navigate("/");
      else if (second && view !== undefined && topology !== undefined) void navigate(`/t/${topology}${view}`);
      else if (event.key === "/") document.querySelector<HTMLInputElement>(".find input")?.focus();
      else if (event.key === "?") dialog.current?.showModal();
      else return;
      event.preventDefault();
    };
    document.addEventListener("keydown", pressed);
    return () => document.removeEventListener("keydown", pressed);
  }, [navigate, topology, on]);
  return (
    <>
      <button type="button" aria-label="Keyboard shortcuts" onClick={() => dialog.current?.showModal()}>
        ?
      </button>
      <dialog ref={dialog} aria-labelledby="shortcuts-title">
        <form method="dialog">
          <h2 id="shortcuts-title">Keyboard shortcuts</h2>
          <dl className="facts">
            {LIST.map(([keys, words]) => (
              <div key={keys}>
                <dt>{words}</dt>
                <dd>
                  {keys.split(" ").map((one) => (
                    <kbd key={one}>{one}</kbd>
                  ))}
                </dd>
              </div>
            ))}
          </dl>
          <label className="check">
            <input
              type="checkbox"
              checked={on}
              onChange={(event) => {
                setOn(event.target.checked);
                try {
                  localStorage.setItem(KEY, event.target.checked ? "on" : "off");
                } catch {
                  // Then it lasts as long as the page.
                }
              }}
            />{" "}
            Shortcuts of one key
          </label>
          <div className="buttons">
            <button type="submit">Close</button>
          </div>
        </form>
      </dialog>
    </>
  );
}
