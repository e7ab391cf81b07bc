import { useEffect, useId, useRef, useState, type ReactNode } from "react";

/** Asks before something is changed: says what will happen, and shows what went wrong if it does. */
export function Confirm({
  title,
  action,
  danger = false,
  children,
  run,
  close,
}: {
  title: string;
  action: string;
  danger?: boolean;
  children: ReactNode;
  run: () => Promise<void>;
  close: () => void;
}) {
  const dialog = useRef<HTMLDialogElement>(null);
  const heading = useId();
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<string | null>(null);
  useEffect(() => {
    dialog.current?.showModal();
  }, []);
  const submit = async () => {
    setBusy(true);
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
        {error !== null && (
          <p className="notice failure" role="alert">
            <span aria-hidden="true">⚠</span> {error}
          </p>
        )}
        <div className="buttons">
          <button type="button" onClick={close}>
            Cancel
          </button>
          <button type="submit" className={danger ? "danger" : "primary"} disabled={busy}>
            {busy ? "Working…" : action}
          </button>
        </div>
      </form>
    </dialog>
  );
}
