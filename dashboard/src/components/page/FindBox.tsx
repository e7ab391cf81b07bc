import { useQueryClient } from "@tanstack/react-query";
import { renewRecords } from "../../api/queries";
import { useNavigate, useSearchParams } from "react-router";

/**
 * The one box in which a record is looked for, by its message id or by the anchor of one of its trees: in a topology,
 * else in all of them.
 */
export function FindBox({ topology }: { topology: string | undefined }) {
  const navigate = useNavigate();
  const queries = useQueryClient();
  const [search] = useSearchParams();
  const asked = search.get("id") ?? "";
  return (
    <form
      role="search"
      className="find"
      onSubmit={(event) => {
        event.preventDefault();
        const text = new FormData(event.currentTarget).get("id");
        if (typeof text !== "string" || text === "") return;
        if (topology !== undefined) void renewRecords(queries, topology);
        const place = topology === undefined ? "" : `/t/${topology}`;
        void navigate(`${place}/find?${new URLSearchParams({ id: text }).toString()}`);
      }}
    >
      <label>
        <span className="hidden">
          Find a record by its id or an anchor{topology === undefined ? ", in all topologies" : ""}
        </span>
        <input
          key={asked}
          name="id"
          type="search"
          defaultValue={asked}
          placeholder="Message id or anchor"
          maxLength={1400}
          spellCheck={false}
          autoComplete="off"
        />
      </label>
      <button type="submit">Find</button>
    </form>
  );
}
