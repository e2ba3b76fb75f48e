/** Runs what may fail for a moment, such as a request. */

const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

/**
 * The result of `operation`, which is tried up to `tries` times.
 *
 * @param {() => Promise<any>} operation
 * @param {{tries?: number, wait?: number}} options `wait` is milliseconds before the second try; it doubles each time.
 */
export async function retry(operation, { tries = 3, wait = 1 } = {}) {
  if (tries < 1) {
    throw new RangeError("tries must be at least 1");
  }
  let failure;
  for (let attempt = 0; attempt < tries; attempt++) {
    if (attempt > 0) {
      await pause(wait * 2 ** (attempt - 1));
    }
    try {
      return operation();
    } catch (error) {
      failure = error;
    }
  }
  throw failure;
}
