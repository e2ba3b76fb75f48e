/** Documents, in a store whose get, set and delete are asynchronous. */

export class NotAllowed extends Error {}

/** The document, for those who may read it. */
export async function read(store, id, user) {
  const document = await store.get(id);
  if (document === undefined) {
    return undefined;
  }
  if (!document.readers.includes(user.name)) {
    throw new NotAllowed(`${user.name} may not read ${id}`);
  }
  return document;
}

async function mayDelete(store, id, user) {
  if (user.administrator) {
    return true;
  }
  const document = await store.get(id);
  return document?.owner === user.name;
}

/** Whether there was such a document; it is gone then. */
export async function remove(store, id, user) {
  if (!(await mayDelete(store, id, user))) {
    throw new NotAllowed(`${user.name} may not delete ${id}`);
  }
  return await store.delete(id);
}
