import { useQuery } from "@tanstack/react-query";
import { client, data } from "../api/client";

/** Whether the token only allows looking. Until that is known it is taken for one that allows more. */
export function useReadOnly(): boolean {
  const access = useQuery({
    queryKey: ["access"],
    queryFn: ({ signal }) => data(client.GET("/api/v1/access", { signal })),
    staleTime: 60_000,
  });
  return access.data?.scope === "read";
}
