/** Texts for narrow places. */

/** Every word with a capital. */
export function title(text) {
  return text.replace(/\b\p{Ll}/gu, (letter) => letter.toUpperCase());
}

/**
 * A text of at most `limit` characters. One that is too long is cut after its last whole word, or within the word
 * where there is only one, and ends with the ellipsis.
 *
 * @throws {RangeError} where the ellipsis alone is longer than the limit.
 */
export function truncate(text, limit, ellipsis = "…") {
  if (limit < ellipsis.length) {
    throw new RangeError(`a limit of ${limit} has no room for ${ellipsis}`);
  }
  if (text.length <= limit) {
    return text;
  }
  const room = text.slice(0, limit - ellipsis.length);
  const space = text[room.length] === " " ? room.length : room.lastIndexOf(" ");
  return (space > 0 ? room.slice(0, space) : room) + ellipsis;
}
