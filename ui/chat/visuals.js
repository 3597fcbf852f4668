// The frame of a page that an agent published: sandboxed, from its own path, as high as it says it is, up to what it may be.

import { h } from '../shared/dom.js';
import { base } from '../shared/api.js';

const PATH = '/visuals/';

/** The page at the address that this page came from, whatever name the host calls itself by. */
function source(url) {
  const { pathname } = new URL(url);
  const at = pathname.lastIndexOf(PATH);
  return at < 0 ? null : new URL(pathname.slice(at + 1), base).href;
}

export function visualFrame(visual) {
  const src = source(visual.url);
  const frame = h('iframe', { title: visual.title, sandbox: 'allow-scripts', referrerPolicy: 'no-referrer', loading: 'lazy', src: src ?? 'about:blank' });
  const highest = visual.maxHeight ?? 600;
  frame.style.height = `${Math.min(highest, 240)}px`;
  const hear = (event) => {
    if (!frame.isConnected) return removeEventListener('message', hear);
    if (event.source !== frame.contentWindow || event.data?.type !== 'scrollback.height') return;
    const height = Number(event.data.height);
    if (height > 0) frame.style.height = `${Math.min(highest, Math.ceil(height))}px`;
  };
  addEventListener('message', hear);
  return h('figure.visual', {}, frame, h('figcaption', {}, visual.title));
}
