import { useEffect, useId, useRef, useState, type ReactNode } from "react";

/** Asks before something is changed: says what will happen, and shows what went wrong if it does. */
export function Confirm({
  title,
  action,
  danger = false,
  typed,
  children,
  stop,
  run,
  close,
}: {
  title: string;
  action: string;
  danger?: boolean;
  /** What has to be typed first, a number with or without its commas: for what nothing brings back. */
  typed?: string;
  children: ReactNode;
  /** Ends what runs after the piece at hand: for what takes long. `run` returns then, and says how far it came. */
  stop?: () => void;
  run: () => Promise<void>;
  close: () => void;
}) {
  const dialog = useRef<HTMLDialogElement>(null);
  const heading = useId();
  const [busy, setBusy] = useState(false);
  const [stopping, setStopping] = useState(false);
  const [error, setError] = useState<string | null>(null);
  const [text, setText] = useState("");
  const field = useId();
  useEffect(() => {
    const before = document.activeElement;
    dialog.current?.showModal();
    return () => queueMicrotask(() => giveBack(before));
  }, []);
  const submit = async () => {
    setBusy(true);
    setStopping(false);
    setError(null);
    try {
      await run();
      close();
    } catch (caught) {
      setError(caught instanceof Error ? caught.message : String(caught));
      setBusy(false);
    }
  };
  return (
    <dialog ref={dialog} aria-labelledby={heading} onClose={close}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          void submit();
        }}
      >
        <h2 id={heading}>{title}</h2>
        {children}
        {typed !== undefined && (
          <>
            <label htmlFor={field}>
              Type <b className="mono">{typed}</b> to confirm
            </label>
            <input
              id={field}
              value={text}
              spellCheck={false}
              autoComplete="off"
              onChange={(event) => setText(event.target.value)}
            />
          </>
        )}
        {error !== null && (
          <p className="notice failure" role="alert">
            <span aria-hidden="true">⚠</span> {error}
          </p>
        )}
        <div className="buttons">
          {busy && stop !== undefined ? (
            <button
              type="button"
              aria-disabled={stopping}
              onClick={() => {
                setStopping(true);
                stop();
              }}
            >
              {stopping ? "Stopping…" : "Stop"}
            </button>
          ) : (
            <button type="button" onClick={close}>
              Cancel
            </button>
          )}
          <button
            type="submit"
            className={danger ? "danger" : "primary"}
            disabled={busy || (typed !== undefined && text !== typed && text.replaceAll(",", "") !== typed)}
          >
            {busy ? "Working…" : action}
          </button>
        </div>
      </form>
    </dialog>
  );
}

/** Focuses what had the focus before the dialog; the page's content if that is gone or can do nothing now. */
function giveBack(before: Element | null): void {
  if (!(before instanceof HTMLElement) || before === document.body) return;
  const able = before.isConnected && !before.matches(":disabled");
  (able ? before : document.getElementById("main"))?.focus({ preventScroll: true });
}
