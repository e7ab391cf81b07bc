import { useQueryClient } from "@tanstack/react-query";
import { useEffect, useRef, useState } from "react";
import { setToken, type Access } from "../../api/token";

/** Asks for a token, which is kept for this tab. */
export function TokenForm({ access }: { access: Exclude<Access, "open"> }) {
  const queries = useQueryClient();
  const [token, setInput] = useState("");
  const field = useRef<HTMLInputElement>(null);
  // Nothing else can be done here. It is made anew when a token is refused.
  useEffect(() => field.current?.focus(), []);
  return (
    <form
      className="token"
      onSubmit={(event) => {
        event.preventDefault();
        setToken(token.trim());
        void queries.resetQueries();
      }}
    >
      <h1>Token</h1>
      {access === "refused" ? (
        <p className="notice failure" role="alert">
          <span aria-hidden="true">⚠</span> The service does not accept this token.
        </p>
      ) : (
        <p>
          This service asks for a token. A token of scope read shows everything but rows of dead letters,
          which take scope rows; to fail, reset and replay takes one of scope operate.
        </p>
      )}
      <label>
        <span className="label">Token</span>
        <input
          ref={field}
          type="password"
          autoComplete="off"
          spellCheck={false}
          required
          value={token}
          onChange={(event) => setInput(event.target.value)}
        />
      </label>
      <p className="faint">It is kept in this tab only and forgotten when the tab is closed.</p>
      <button type="submit" className="primary">
        Use token
      </button>
    </form>
  );
}
