// Numbers and times in the words of whoever looks.

const DATE = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'medium' });
const CLOCK = new Intl.DateTimeFormat(undefined, { hour: '2-digit', minute: '2-digit' });
const DAY = new Intl.DateTimeFormat(undefined, { day: 'numeric', month: 'short' });
const COUNT = new Intl.NumberFormat();

export const count = (n) => COUNT.format(n);
/** `1 turn`, `2 turns` */
export const many = (n, one, more = `${one}s`) => `${count(n)} ${n === 1 ? one : more}`;
export const dateTime = (iso) => DATE.format(new Date(iso));

/** The time of today, the day of what is older. */
export function when(iso) {
  const at = new Date(iso);
  return at.toDateString() === new Date().toDateString() ? CLOCK.format(at) : DAY.format(at);
}

/** `1.5 KiB` */
export function bytes(n) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let unit = 0;
  while (n >= 1024 && unit < units.length - 1) [n, unit] = [n / 1024, unit + 1];
  return `${unit && n < 10 ? n.toFixed(1) : Math.round(n)} ${units[unit]}`;
}

/** `420 ms`, `3.2 s`, `2 min 5 s` */
export function duration(ms) {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(1)} s`;
  return `${Math.floor(ms / 60_000)} min ${Math.round((ms % 60_000) / 1000)} s`;
}

/** The last piece of a URI, for people: as it is where a `%` in it stands for nothing. */
export function short(uri) {
  const last = uri.split('/').pop() || uri;
  try {
    return decodeURIComponent(last);
  } catch {
    return last;
  }
}
