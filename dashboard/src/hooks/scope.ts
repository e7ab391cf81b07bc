import { useQuery } from "@tanstack/react-query";
import { accessQuery } from "../api/queries";

/** Whether the token allows no changes. Until that is known it is taken for one that does. */
export function useReadOnly(): boolean {
  const access = useQuery(accessQuery());
  return access.data !== undefined && access.data.scope !== "operate";
}
