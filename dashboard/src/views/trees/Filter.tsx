import type { Schemas } from "../../api/client";
import { Choice, MessageIdEntry } from "../../components/Fields";
import { BUCKETS } from "../../lib/series";

export const TREE_FILTER = {
  bucket: "",
  spout: "",
  shard: "",
  state: "",
  older_than: "",
  message_id: "",
  message_id_base64: "",
};

type Filter = typeof TREE_FILTER;

const AGES = [
  ["5", "5 s"],
  ["15", "15 s"],
  ["30", "30 s"],
  ["60", "1 min"],
  ["300", "5 min"],
  ["3600", "1 h"],
] as const;

/** Which trees are shown. */
export function TreeFilter({
  filter,
  topology,
  change,
}: {
  filter: Filter;
  topology: Schemas["TopologyState"] | undefined;
  change: (patch: Partial<Filter>) => void;
}) {
  const shards = topology?.shards.map((shard) => shard.shard.toString()) ?? [];
  return (
    <search className="filter">
      <Choice
        label="Bucket"
        value={filter.bucket}
        options={[...BUCKETS, "waiting"]}
        change={(bucket) => change({ bucket })}
      />
      <Choice
        label="Spout"
        value={filter.spout}
        options={topology?.spouts ?? []}
        change={(spout) => change({ spout })}
      />
      <Choice label="Shard" value={filter.shard} options={shards} change={(shard) => change({ shard })} />
      <Choice
        label="State"
        value={filter.state}
        options={["pending", "waiting"]}
        change={(state) => change({ state })}
      />
      <Choice
        label="Older than"
        value={filter.older_than}
        options={AGES}
        change={(older_than) => change({ older_than })}
      />
      <MessageIdEntry filter={filter} change={change} />
      {Object.values(filter).some((value) => value !== "") && (
        <button
          type="button"
          onClick={() => change(Object.fromEntries(Object.keys(filter).map((name) => [name, ""])))}
        >
          Clear
        </button>
      )}
    </search>
  );
}
