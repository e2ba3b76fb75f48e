/** Versions such as 1.4.2, with as many parts as they like. */

function parts(version) {
  const found = /^v?(\d+(?:\.\d+)*)$/.exec(version.trim());
  if (!found) {
    throw new TypeError(`not a version: ${version}`);
  }
  return found[1].split(".").map(Number);
}

/** Below 0 where `a` is older than `b`, above 0 where it is newer, 0 where they are the same. */
export function compareVersions(a, b) {
  const left = parts(a);
  const right = parts(b);
  for (let index = 0; index < Math.max(left.length, right.length); index++) {
    const one = left[index] ?? 0;
    const other = right[index] ?? 0;
    if (one !== other) {
      return one < other ? -1 : 1;
    }
  }
  return 0;
}

/** The newest of the versions, undefined where there is none. */
export function newest(versions) {
  return [...versions].sort(compareVersions).at(-1);
}
