/** Buttons of an operator, which a token that allows no changes disables, and why. */

import type { ReactNode } from "react";
import { useReadOnly } from "../hooks/scope";

const WHY = "read-only";

export function OperatorButton({
  kind,
  disabled,
  press,
  children,
}: {
  kind?: "primary" | "danger";
  disabled: boolean;
  press: () => void;
  children: ReactNode;
}) {
  const readOnly = useReadOnly();
  return (
    <button
      type="button"
      className={kind}
      disabled={disabled || readOnly}
      aria-describedby={readOnly ? WHY : undefined}
      onClick={press}
    >
      {children}
    </button>
  );
}

/** Why they are disabled; nothing where they are not. Once on a page. */
export function ReadOnly() {
  if (!useReadOnly()) return null;
  return (
    <span id={WHY} className="faint">
      Your token allows no changes: they need one of scope operate.
    </span>
  );
}
