/** Fields of a filter: each applies when it is changed, text when it is left or entered. */

import type { ReactNode } from "react";
import { messageIdQuery } from "../lib/records";

export function Field({ label, children }: { label: string; children: ReactNode }) {
  return (
    <label className="field">
      <span className="label">{label}</span>
      {children}
    </label>
  );
}

export function Choice({
  label,
  value,
  options,
  change,
}: {
  label: string;
  value: string;
  options: readonly (string | readonly [string, string])[];
  change: (value: string) => void;
}) {
  const pairs = options.map((one) => (typeof one === "string" ? ([one, one] as const) : one));
  const known = value === "" || pairs.some(([name]) => name === value);
  return (
    <Field label={label}>
      <select value={value} onChange={(event) => change(event.target.value)}>
        <option value="">any</option>
        {!known && <option value={value}>{value}</option>}
        {pairs.map(([name, text]) => (
          <option key={name} value={name}>
            {text}
          </option>
        ))}
      </select>
    </Field>
  );
}

export interface MessageIdFilter {
  message_id: string;
  message_id_base64: string;
}

/** A message id, as its text or its bytes. */
export function MessageIdEntry({
  filter,
  change,
}: {
  filter: MessageIdFilter;
  change: (patch: MessageIdFilter) => void;
}) {
  return (
    <Entry
      label="Message id"
      value={filter.message_id_base64 === "" ? filter.message_id : `base64:${filter.message_id_base64}`}
      placeholder="its text, or base64:…"
      change={(text) => change({ message_id: "", message_id_base64: "", ...messageIdQuery(text) })}
    />
  );
}

export function Entry({
  label,
  value,
  change,
  type = "text",
  placeholder,
  maxLength,
}: {
  label: string;
  value: string;
  change: (value: string) => void;
  type?: "text" | "number";
  placeholder?: string;
  maxLength?: number;
}) {
  return (
    <Field label={label}>
      <input
        // The URL is the state: when it changes by itself, the field begins anew with it.
        key={value}
        type={type}
        {...(type === "number" ? { min: 0, step: "any" } : {})}
        defaultValue={value}
        placeholder={placeholder}
        maxLength={maxLength}
        spellCheck={false}
        autoComplete="off"
        onBlur={(event) => event.target.value !== value && change(event.target.value)}
        onKeyDown={(event) => event.key === "Enter" && change(event.currentTarget.value)}
      />
    </Field>
  );
}

interface Failed {
  status: string;
  spout: string;
  step: string;
  reason: string;
}

/** Which failures: how they ended, whose they are, which step has failed them, and why. */
export function FailureFields({
  filter,
  spouts,
  change,
}: {
  filter: Failed;
  spouts: readonly string[];
  change: (patch: Partial<Failed>) => void;
}) {
  return (
    <>
      <Choice
        label="Kind"
        value={filter.status}
        options={["failed", "expired"]}
        change={(status) => change({ status })}
      />
      <Choice label="Spout" value={filter.spout} options={spouts} change={(spout) => change({ spout })} />
      <Entry label="Step" value={filter.step} maxLength={64} change={(step) => change({ step })} />
      <Entry
        label="Reason"
        value={filter.reason}
        placeholder="part of it"
        maxLength={256}
        change={(reason) => change({ reason })}
      />
    </>
  );
}
