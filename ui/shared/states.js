// What the reducers share: the bits of a status, and states that are changed by making new ones.

export const ACTIVITY = 31;
export const IDLE = 1;
export const ERROR = 2;
export const IN_PROGRESS = 8;
export const INPUT_NEEDED = 24;
export const IS_READ = 32;
export const IS_ARCHIVED = 64;

/** What somebody or something is at, by a status: `idle`, `error`, `running` or `waiting`. */
export function activityOf(status = IDLE) {
  const activity = status & ACTIVITY;
  if ((activity & INPUT_NEEDED) === INPUT_NEEDED) return 'waiting';
  if (activity & IN_PROGRESS) return 'running';
  return activity & ERROR ? 'error' : 'idle';
}

export const isRead = (status = 0) => Boolean(status & IS_READ);
export const isArchived = (status = 0) => Boolean(status & IS_ARCHIVED);

export const flag = (status, bit, on) => (on ? status | bit : status & ~bit);

/** An object without the fields that are not there: absent and null are one thing in the protocol. */
export function tidy(object) {
  for (const key of Object.keys(object)) if (object[key] === undefined || object[key] === null) delete object[key];
  return object;
}

export const change = (object, changes) => tidy({ ...object, ...changes });

/** A list with the entry put in the place of the one of its name, else behind all others. */
export function upsert(list = [], entry, nameOf) {
  const at = list.findIndex((one) => nameOf(one) === nameOf(entry));
  return at < 0 ? [...list, entry] : list.with(at, entry);
}

export function withDirectory(state, directory) {
  const list = state.workingDirectories ?? [];
  return list.includes(directory) ? change(state, { workingDirectories: list }) : change(state, { workingDirectories: [...list, directory] });
}

export function withoutDirectory(state, directory) {
  const list = state.workingDirectories;
  return list ? change(state, { workingDirectories: list.filter((one) => one !== directory) }) : state;
}
