/** Builds addresses of the search page. */

/** The part of an address after the question mark; what is null or undefined is left out. */
export function queryString(parameters) {
  const pairs = [];
  for (const [name, value] of Object.entries(parameters)) {
    if (value === null || value === undefined) {
      continue;
    }
    const values = Array.isArray(value) ? value : [value];
    for (const each of values) {
      pairs.push(`${encodeURIComponent(name)}=${each}`);
    }
  }
  return pairs.join("&");
}

/** The address of a search. */
export function searchLink(base, parameters) {
  const query = queryString(parameters);
  return query ? `${base}?${query}` : base;
}
