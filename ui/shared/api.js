// The host over HTTP, for the pages: JSON, JSON lines and live events, always with the token, errors as sentences.

import { askForToken, token } from './token.js';

/** Where the host is, also behind a proxy that serves it under a path: two folders above this file. */
export const base = new URL('../../', import.meta.url);

/** An answer that is none: `status`, the host's stable `code`, and its sentence. */
export class ApiError extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

/** The URL of a path with parameters; those that are null or empty are left out, arrays repeat theirs. */
export function url(path, params = {}) {
  const address = new URL(path.replace(/^\//, ''), base);
  for (const [name, value] of Object.entries(params)) {
    for (const one of [value].flat()) if (one !== null && one !== undefined && one !== '') address.searchParams.append(name, one);
  }
  return address;
}

/** A request that was answered well, else an ApiError. A missing or bad token is asked for, and the request made again. */
export async function request(method, path, { params, body, signal, headers } = {}) {
  for (;;) {
    const sent = token();
    const response = await fetch(url(path, params), {
      method,
      signal,
      headers: {
        ...(sent ? { authorization: `Bearer ${sent}` } : {}),
        ...(body === undefined ? {} : { 'content-type': 'application/json' }),
        ...headers,
      },
      body: body === undefined ? undefined : JSON.stringify(body),
      cache: 'no-store',
      referrerPolicy: 'no-referrer',
    }).catch((error) => {
      if (error.name === 'AbortError') throw error;
      throw new ApiError(0, 'unreachable', 'The host cannot be reached.');
    });
    if (response.ok) return response;
    const said = await response.json().catch(() => ({}));
    const fault = said.error ?? said;
    const error = new ApiError(response.status, fault.code ?? 'error', fault.message ?? `The host answered ${response.status}.`);
    if (response.status !== 401) throw error;
    // Somebody may have given one while this request was on its way.
    if (token() === sent) await askForToken(error.message).catch(() => Promise.reject(error));
  }
}

/** GET, as JSON. */
export const get = async (path, params, options) => (await request('GET', path, { ...options, params })).json();

/** GET, as the objects of JSON lines; `onLine` takes each as it comes. */
export async function lines(path, params, options = {}) {
  const response = await request('GET', path, { ...options, params });
  const all = [];
  const take = options.onLine ?? ((line) => all.push(line));
  for await (const line of textLines(response.body)) if (line) take(JSON.parse(line));
  return all;
}

/** POST and DELETE, as JSON where something is answered. */
export const post = async (path, body, options) => answered(await request('POST', path, { ...options, body }));
export const remove = async (path, options) => answered(await request('DELETE', path, options));

async function answered(response) {
  const said = await response.text();
  return said ? JSON.parse(said) : null;
}

/**
 * Server-sent events, with the token in a header, which the browser's own EventSource cannot. `onEvent(id, data)` is called for
 * each; a connection that ends is made again from the last id until `signal` says stop. `onState` hears `open` and `lost`.
 */
export async function stream(path, params, { onEvent, onState = () => {}, signal, lastEventId = null }) {
  let last = lastEventId;
  for (let wait = 500; !signal.aborted; wait = Math.min(wait * 2, 10_000)) {
    try {
      const headers = { accept: 'text/event-stream', ...(last === null ? {} : { 'last-event-id': String(last) }) };
      const response = await request('GET', path, { params, signal, headers });
      onState('open');
      wait = 500;
      let id = null;
      let data = [];
      for await (const line of textLines(response.body)) {
        if (line === '') {
          if (data.length) onEvent((last = id ?? last), JSON.parse(data.join('\n')));
          [id, data] = [null, []];
        } else if (line.startsWith('id:')) id = line.slice(3).trim();
        else if (line.startsWith('data:')) data.push(line.slice(5).trimStart());
      }
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof ApiError && error.status >= 400 && error.status < 500) throw error;
    }
    if (signal.aborted) return;
    onState('lost');
    await pause(wait, signal);
  }
}

/** Resolves after `ms`, or at once when `signal` says stop. */
export function pause(ms, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal?.addEventListener('abort', () => (clearTimeout(timer), resolve()), { once: true });
  });
}

async function* textLines(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    const parts = (rest + value).split('\n');
    rest = parts.pop();
    for (const line of parts) yield line.replace(/\r$/, '');
  }
  if (rest) yield rest;
}
