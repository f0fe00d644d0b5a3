import type { EndpointPageRequest, StoredEndpoint } from './endpoint-store.js';

/** Cuts a page out of endpoints that are in the order of their ids, by code units. */
export function pageOf(
  sorted: readonly StoredEndpoint[],
  { tenant, after, limit }: EndpointPageRequest,
): StoredEndpoint[] {
  const page: StoredEndpoint[] = [];
  for (let at = after === undefined ? 0 : firstBehind(sorted, after); at < sorted.length; at++) {
    if (page.length >= limit) break;
    const endpoint = sorted[at]!;
    if (tenant === undefined || endpoint.tenant === (tenant ?? undefined)) page.push(endpoint);
  }
  return page;
}

function firstBehind(sorted: readonly StoredEndpoint[], id: string): number {
  let low = 0;
  let high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle]!.id > id) high = middle;
    else low = middle + 1;
  }
  return low;
}
