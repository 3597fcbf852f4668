// The log in windows: of one channel or of all, filtered, newest at the end, followed live; one event whole.

import { h, replace } from '../shared/dom.js';
import { get, pause, stream } from '../shared/api.js';
import { tellError } from '../shared/dialog.js';
import { bytes, count, dateTime, short } from '../shared/format.js';
import { named, note, to } from './links.js';

export const title = 'Log';

const PAGE = 100;
/** Rows that are kept in the page while it follows; the oldest go. */
const KEPT = 600;
/** Events that come within this time are fetched together, in milliseconds. */
const GATHER = 100;
/** How often it is looked for what cannot be heard live. */
const LOOK = 2_000;
const FILTERS = ['type', 'by', 'since', 'until', 'privileged'];
const TYPES = ['chat/*', 'session/*', 'root/*', 'host/*', 'chat/turn*', 'chat/toolCall*', 'chat/truncated', 'chat/error', 'host/user*'];

export async function show(place, { params, signal }) {
  const channel = params.get('channel');
  const name = channel ? await named(channel, signal) : null;
  const fields = filterFields(params);
  const body = h('tbody');
  const table = h('table.log', { aria: { label: 'Events, the newest last' } }, head(), body);
  const state = h('p.hint', { role: 'status' });
  const older = h('button', { type: 'button' }, 'Older');
  const newer = h('button', { type: 'button' }, 'Newer');
  const follow = h('input', { type: 'checkbox', id: 'follow' });
  const whole = h('section.whole', { hidden: true, aria: { label: 'The event' } });
  const jump = h('input', { type: 'number', id: 'jump', min: 1, inputMode: 'numeric' });
  const slider = h('input', { type: 'range', id: 'place', min: 0, max: 0, value: 0, disabled: true });
  const go_ = h('form.jump', {}, h('label', { htmlFor: 'jump' }, 'To event'), jump, h('button.small', { type: 'submit' }, 'Go'));
  replace(
    place,
    name?.crumbs,
    h('div.page-head', {}, h('h1', {}, name ? `Log of ${name.title}` : 'Log'), channel ? h('code.uri', {}, channel) : h('p.lead', {}, 'Who did what: every event of this host, in one line of numbers.')),
    channel && isChat(channel) ? h('p', {}, h('a', { href: to('time', { channel }) }, 'Time travel'), ' – the conversation at any of these events') : null,
    filterForm(fields, () => restart()),
    h('div.log-bar', {}, h('div.buttons', {}, older, newer), h('div.check', {}, follow, h('label', { htmlFor: 'follow' }, 'Follow live')), go_),
    channel ? h('div.field', {}, h('label', { htmlFor: 'place' }, 'Place in the log'), slider) : null,
    state,
    h('div.log-and-event', {}, h('div.scroll-x.log-place', { tabIndex: 0, role: 'region', aria: { label: 'Events' } }, table), whole),
  );

  let edges = { older: null, newer: 0 };
  let following = new AbortController();
  let marks = [];
  const asked = () => ({ channel, limit: PAGE, ...Object.fromEntries(FILTERS.map((name) => [name, fields[name].type === 'checkbox' ? (fields[name].checked ? 'true' : null) : fields[name].value.trim()])) });
  const load = (from) => get('api/log/window', { ...asked(), ...from }, { signal });
  const tell = (window) => {
    edges = { older: window.older ?? null, newer: window.newer };
    older.disabled = edges.older === null;
    newer.disabled = edges.newer >= window.newest;
    const cut = window.cut ? ' Much was looked through: go on with Older or Newer.' : '';
    const rows = body.childElementCount;
    const [first, last] = [body.firstElementChild?.dataset.seq, body.lastElementChild?.dataset.seq];
    const shown = rows === 1 ? `Event ${first}.` : `${count(rows)} events, from ${first} to ${last}.`;
    state.textContent = (rows ? shown : 'Nothing here fits.') + cut;
    if (marks.length && rows) slider.value = nearest(marks, Number(body.lastElementChild.dataset.seq));
  };
  let filling = new AbortController();
  const fill = async (from, focus) => {
    filling.abort();
    filling = new AbortController();
    const mine = filling.signal;
    const window = await load(from);
    // Another window was asked for meanwhile.
    if (mine.aborted) return window;
    replace(body, window.events.map((event) => row(event, channel, open)));
    tell(window);
    if (focus) body.querySelector('button')?.focus();
    return window;
  };
  const open = async (seq, preventScroll = false) => {
    note({ event: seq });
    for (const line of body.children) line.toggleAttribute('data-open', Number(line.dataset.seq) === seq);
    const event = await get(`api/log/${seq}`, {}, { signal });
    whole.hidden = false;
    replace(whole, ...eventWhole(event, () => ((whole.hidden = true), note({ event: null }), body.querySelector(`[data-seq="${seq}"] button`)?.focus())));
    whole.querySelector('h2').focus({ preventScroll });
  };
  const restart = () => {
    note(Object.fromEntries(Object.entries(asked()).filter(([name]) => FILTERS.includes(name))));
    fill({}).catch(tellError);
  };
  older.addEventListener('click', () => (stopFollowing(), fill({ before: edges.older }).catch(tellError)));
  newer.addEventListener('click', () => fill({ after: edges.newer }).catch(tellError));
  go_.addEventListener('submit', (event) => {
    event.preventDefault();
    if (!jump.value) return;
    stopFollowing();
    fill({ before: Number(jump.value) + 1 }).catch(tellError);
  });
  slider.addEventListener('input', () => {
    stopFollowing();
    fill({ before: marks[Number(slider.value)] + 1 }).catch(tellError);
  });

  const stopFollowing = () => {
    follow.checked = false;
    following.abort();
  };
  const startFollowing = async () => {
    following.abort();
    following = new AbortController();
    const mine = following.signal;
    await fill({});
    let waiting = false;
    const more = async () => {
      if (waiting || mine.aborted) return;
      waiting = true;
      await pause(GATHER, mine);
      waiting = false;
      if (mine.aborted) return;
      const since = edges.newer;
      const window = await load({ after: since });
      if (mine.aborted || since !== edges.newer) return;
      const area = body.closest('.log-place');
      const atEnd = area.scrollHeight - area.scrollTop - area.clientHeight < 60;
      body.append(...window.events.map((event) => row(event, channel, open)));
      while (body.childElementCount > KEPT) body.firstElementChild.remove();
      const { older } = edges;
      tell(window);
      edges.older = older;
      if (since < window.newer && window.newer < window.newest) more().catch(tellError);
      if (atEnd) area.scrollTop = area.scrollHeight;
    };
    const onEvent = () => more().catch(tellError);
    const onState = (how) => (state.dataset.live = how);
    // What clients see is heard at once. Records of the host, and all of it for who reads the log and not what is said, are looked for.
    const heard = stream('api/events', { channel, after: edges.newer }, { onEvent, onState, signal: mine }).catch((error) => {
      if (!mine.aborted && error.status !== 404) throw error;
    });
    const looked = async () => {
      for (; !mine.aborted; await pause(LOOK, mine)) await more().catch(() => {});
    };
    await Promise.all([heard, looked()]);
  };
  follow.addEventListener('change', () => (follow.checked ? startFollowing().catch(tellError) : stopFollowing()));
  signal.addEventListener('abort', () => following.abort());

  const seq = Number(params.get('event'));
  await fill(seq ? { before: seq + Math.floor(PAGE / 2) } : {});
  const area = body.closest('.log-place');
  area.scrollTop = area.scrollHeight;
  if (seq) {
    // Within the table alone: the page stays where it is.
    const line = body.querySelector(`[data-seq="${seq}"]`);
    if (line) area.scrollTop = line.offsetTop - area.clientHeight / 2;
    await open(seq, true).catch(tellError);
  }
  if (channel) {
    marks = (await get('api/extent', { channel }, { signal }).catch(() => ({ marks: [] }))).marks;
    slider.disabled = marks.length < 2;
    slider.max = Math.max(0, marks.length - 1);
    slider.value = body.lastElementChild ? nearest(marks, Number(body.lastElementChild.dataset.seq)) : slider.max;
  }
}

const isChat = (channel) => channel.startsWith('ahp-chat:');

/** The place of the last of `marks` at or before `seq`. */
function nearest(marks, seq) {
  const at = marks.findIndex((mark) => mark > seq);
  return at < 0 ? marks.length - 1 : Math.max(0, at - 1);
}

function filterFields(params) {
  const text = (name, more) => h('input', { type: 'text', id: `by-${name}`, value: params.get(name) ?? '', autocomplete: 'off', spellcheck: false, ...more });
  return {
    type: text('type', { placeholder: 'chat/*', list: 'types' }),
    by: text('by', { placeholder: 'user:ada' }),
    since: text('since', { placeholder: '2h, or a time' }),
    until: text('until', { placeholder: '30m, or a time' }),
    privileged: h('input', { type: 'checkbox', id: 'by-privileged', checked: params.get('privileged') === 'true' }),
  };
}

function filterForm(fields, apply) {
  const field = (name, label) => h('div.field', {}, h('label', { htmlFor: `by-${name}` }, label), fields[name]);
  const clear = () => {
    for (const input of Object.values(fields)) input.type === 'checkbox' ? (input.checked = false) : (input.value = '');
    apply();
  };
  fields.privileged.addEventListener('change', apply);
  return h(
    'form.filters',
    { role: 'search', aria: { label: 'Filter' }, onsubmit: (event) => (event.preventDefault(), apply()) },
    h('datalist', { id: 'types' }, TYPES.map((type) => h('option', { value: type }))),
    field('type', 'Type'),
    field('by', 'Who'),
    field('since', 'Since'),
    field('until', 'Until'),
    h('div.check', {}, fields.privileged, h('label', { htmlFor: 'by-privileged' }, 'Privileged ones')),
    h('div.buttons', {}, h('button.primary', { type: 'submit' }, 'Filter'), h('button', { type: 'button', onclick: clear }, 'Clear')),
  );
}

const head = () => h('thead', {}, h('tr', {}, h('th.number', { scope: 'col' }, 'Event'), h('th', { scope: 'col' }, 'Time'), h('th', { scope: 'col' }, 'Type'), h('th', { scope: 'col' }, 'Who'), h('th.number', { scope: 'col' }, 'Size'), h('th', { scope: 'col' }, 'What it says')));

function row(event, channel, open) {
  const { serverSeq, type } = event;
  return h(
    'tr',
    { data: { seq: serverSeq, kind: type.split('/')[0], privileged: Boolean(event.privileged) } },
    h('td.number', {}, h('button.seq', { type: 'button', aria: { label: `Event ${serverSeq}` }, onclick: () => open(serverSeq).catch(tellError) }, String(serverSeq))),
    h('td', {}, h('time', { dateTime: event.at, title: event.at }, clock(event.at))),
    h('td', {}, h('span.type', {}, type), event.folded ? h('span.chip', { title: `It stands for the events from ${event.folded[0]} to ${event.folded[1]}` }, 'folded') : null, event.privileged ? h('span.chip', { data: { kind: 'waiting' } }, 'privileged') : null),
    h('td', {}, event.principal),
    h('td.number', {}, bytes(event.bytes)),
    h('td.brief', {}, channel ? null : h('a.channel', { href: to('log', { channel: event.channel }) }, short(event.channel)), event.brief),
  );
}

const TODAY = new Intl.DateTimeFormat(undefined, { hour: '2-digit', minute: '2-digit', second: '2-digit', fractionalSecondDigits: 3 });
const clock = (iso) => (new Date(iso).toDateString() === new Date().toDateString() ? TODAY.format(new Date(iso)) : dateTime(iso));

function eventWhole(event, close) {
  const { action, ...about } = event;
  const facts = [
    ['Type', h('code', {}, about.type)],
    ['Channel', h('a', { href: to('log', { channel: about.channel, event: about.serverSeq }) }, about.channel)],
    ['Time', `${dateTime(about.at)} (${about.at})`],
    ['Who', about.principal],
    ['Client', about.origin ? `${about.origin.clientId}, its action ${about.origin.clientSeq}` : null],
    ['Size', bytes(about.bytes)],
    ['Stands for', about.folded ? `the events from ${about.folded[0]} to ${about.folded[1]}` : null],
  ];
  return [
    h('div.whole-head', {}, h('h2', { tabIndex: -1 }, `Event ${about.serverSeq}`), h('button.small', { type: 'button', onclick: close }, 'Close')),
    h('dl.facts', {}, facts.filter(([, value]) => value).map(([name, value]) => h('div', {}, h('dt', {}, name), h('dd', {}, value)))),
    h('div.node-links', {}, h('a', { href: to('time', { channel: about.channel, at: about.serverSeq }) }, 'The state right after it')),
    h('pre', { tabIndex: 0, role: 'group', aria: { label: 'The action' } }, h('code', {}, JSON.stringify(action, null, 2))),
  ];
}
