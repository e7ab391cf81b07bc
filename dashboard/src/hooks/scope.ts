import { useQuery } from "@tanstack/react-query";
import { client, data } from "../api/client";

/** Whether the token allows no changes. Until that is known it is taken for one that does. */
export function useReadOnly(): boolean {
  const access = useQuery({
    queryKey: ["access"],
    queryFn: ({ signal }) => data(client.GET("/api/v1/access", { signal })),
    staleTime: 60_000,
  });
  return access.data !== undefined && access.data.scope !== "operate";
}
