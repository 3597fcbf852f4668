// Time travel: a chat, or any channel, at each of its events, by a slider; what changed between two; a fork from there.

import { h, replace } from '../shared/dom.js';
import { get, pause } from '../shared/api.js';
import { tellError } from '../shared/dialog.js';
import { count, dateTime, many } from '../shared/format.js';
import { conversation } from './conversation.js';
import { forkButton } from './fork.js';
import { named, needs, note, to } from './links.js';

export const title = 'Time travel';

/** Turns that are shown at first, and how many more each time. */
const TURNS = 20;
/** Characters of the raw state that are shown without being asked for. */
const RAW = 60_000;
/** How long a moment has to stay before it is noted in the address and compared, in milliseconds. */
const STILL = 250;
/** Changes of a comparison that are shown. */
const CHANGES = 300;

export async function show(place, { params, go, me, signal }) {
  const channel = params.get('channel') ?? '';
  let extent = await get('api/extent', { channel }, { signal });
  const name = await named(channel, signal);
  if (!extent.marks.length) throw new Error('There is no event in it.');
  const isChat = channel.startsWith('ahp-chat:');
  const first = extent.first.serverSeq;
  let last = extent.last.serverSeq;
  const wanted = Number(params.get('at')) || last;
  let at = Math.min(Math.max(wanted, first), last);
  let turns = TURNS;
  let base = Number(params.get('from')) || null;

  const slider = h('input', { type: 'range', id: 'moment', min: 0, max: extent.marks.length - 1, step: 1, value: placeOf(extent.marks, at) });
  const seq = h('input', { type: 'number', id: 'seq', min: first, max: last, value: at, inputMode: 'numeric' });
  const said = h('p.moment', { role: 'status' });
  const left = h('section.card.then', { aria: { label: 'The conversation then' } });
  const right = h('section.card.raw', { aria: { label: 'The raw state then' } });
  const changes = h('section.card.changes', { hidden: !base, aria: { label: 'What changed' } });
  const step = (label, title, move) => h('button.small', { type: 'button', title, aria: { label: title }, onclick: () => Promise.resolve(move()).then((next) => next && moveTo(next)).catch(tellError) }, label);
  const ends = () => extent.turns.map((turn) => turn.serverSeq);
  const beside = (which) => get('api/around', { channel, at }, { signal }).then((around) => around[which]?.serverSeq);
  const lead = h('p.lead', {}, extentWords(extent));
  // The channel goes on meanwhile.
  const newest = async () => {
    extent = await get('api/extent', { channel }, { signal });
    last = extent.last.serverSeq;
    slider.max = extent.marks.length - 1;
    seq.max = last;
    lead.textContent = extentWords(extent);
    return last;
  };
  const compare = h('button', { type: 'button', onclick: () => setBase(base === null ? at : null) }, '');

  replace(
    place,
    name.crumbs,
    h('div.page-head', {}, h('h1', {}, `Time travel: ${name.title}`), h('code.uri', {}, channel)),
    lead,
    h(
      'section.card.travel',
      { aria: { label: 'Moment' } },
      h('div.field', {}, h('label', { htmlFor: 'moment' }, 'Moment'), slider),
      h(
        'div.travel-steps',
        {},
        step('First', 'First event', () => first),
        isChat ? step('« Turn', 'Previous turn', () => ends().findLast((end) => end < at) ?? first) : null,
        step('‹ Event', 'Previous event', () => beside('previous')),
        step('Event ›', 'Next event', () => beside('next').then((next) => (next > last ? newest().then(() => next) : next))),
        isChat ? step('Turn »', 'Next turn', async () => ends().find((end) => end > at) ?? (await newest(), ends().find((end) => end > at) ?? last)) : null,
        step('Last', 'Last event', newest),
        h('span.jump', {}, h('label', { htmlFor: 'seq' }, 'Event'), seq),
      ),
      said,
      h('div.buttons', {}, isChat ? forkButton({ chat: channel, at: () => at, me, go, primary: true }) : null, compare, me.maySomewhere('log:read') ? h('a.button', { href: '#', id: 'in-log' }, 'In the log') : null),
      me.maySomewhere('log:read') ? null : needs('log:read', 'What each event was'),
    ),
    changes,
    h('div.side-by-side', {}, left, right),
  );
  if (!isChat) left.remove();

  // One moment is asked for at a time: where the slider went on meanwhile, the newest is asked for next.
  let looking = null;
  let again = false;
  let still = new AbortController();
  signal.addEventListener('abort', () => still.abort());
  const moveTo = (next) => {
    at = Math.min(Math.max(next, first), last);
    turns = TURNS;
    slider.value = placeOf(extent.marks, at);
    return look();
  };
  const look = () => {
    again = true;
    seq.value = at;
    slider.setAttribute('aria-valuetext', `event ${at}`);
    compare.textContent = base === null ? 'Compare from here' : 'End the comparison';
    const link = document.getElementById('in-log');
    if (link) link.href = to('log', { channel, event: at });
    settle().catch(tellError);
    looking ??= (async () => {
      while (again && !signal.aborted) {
        again = false;
        await paint();
      }
    })().finally(() => (looking = null));
    return looking;
  };
  const paint = async () => {
    const [snapshot, around] = await Promise.all([get('api/state', { channel, at, turns }, { signal }), get('api/around', { channel, at }, { signal })]);
    if (again || signal.aborted) return;
    at = snapshot.fromSeq;
    seq.value = at;
    const folded = snapshot.folded ? ` · the events from ${snapshot.folded[0]} to ${snapshot.folded[1]} are one now` : '';
    said.textContent = `Right after event ${at} · ${dateTime(around.here.at)}${around.next ? '' : ' · now'}${folded}`;
    if (isChat) replace(left, h('h2', {}, snapshot.state.title || name.title), conversation(snapshot.state, () => ((turns += TURNS), look().catch(tellError))));
    replace(right, h('h2', {}, 'State'), raw(snapshot.state));
  };
  /** What is done when the moment stays. */
  const settle = async () => {
    still.abort();
    still = new AbortController();
    const mine = still.signal;
    await pause(STILL, mine);
    if (mine.aborted) return;
    note({ at, from: base });
    if (base !== null) await showChanges(mine);
  };
  const showChanges = async (mine) => {
    const [from, upto] = [Math.min(base, at), Math.max(base, at)];
    const patch = from === upto ? [] : await get('api/diff', { channel, from, to: upto }, { signal: mine });
    if (!mine.aborted) replace(changes, h('h2', {}, `From event ${from} to event ${upto}`), patchList(patch));
  };
  const setBase = (next) => {
    base = next;
    changes.hidden = base === null;
    look().catch(tellError);
  };
  slider.addEventListener('input', () => {
    at = extent.marks[Number(slider.value)];
    look().catch(tellError);
  });
  seq.addEventListener('change', () => moveTo(Number(seq.value) || at).catch(tellError));
  await look();
}

/** The place of the last mark at or before `seq`. */
function placeOf(marks, seq) {
  const next = marks.findIndex((mark) => mark > seq);
  return next < 0 ? marks.length - 1 : Math.max(0, next - 1);
}

function extentWords({ first, last, events, isCounted, ended }) {
  const all = `${isCounted ? '' : 'more than '}${many(events, 'event')}`;
  const turns = ended ? ` and ${many(ended, 'turn')} that ended` : '';
  return `${all}${turns}, from event ${first.serverSeq} (${dateTime(first.at)}) to event ${last.serverSeq} (${dateTime(last.at)}). The arrow keys move the slider.`;
}

function raw(state) {
  const text = JSON.stringify(state, null, 2);
  const pre = h('pre', { tabIndex: 0, role: 'group', aria: { label: 'The state as JSON' } }, h('code', {}, text.slice(0, RAW)));
  if (text.length <= RAW) return pre;
  const all = h('button.small', { type: 'button', onclick: () => (replace(pre, h('code', {}, text)), all.remove()) }, `All ${count(text.length)} characters`);
  return [pre, all];
}

const WORDS = { add: 'added', remove: 'removed', replace: 'changed', move: 'moved', copy: 'copied' };
const KINDS = { add: 'running', remove: 'error', replace: 'waiting' };

function patchList(patch) {
  if (!patch.length) return h('p.hint', {}, 'Nothing changed.');
  const value = (one) => (one.value === undefined ? one.from ?? '' : typeof one.value === 'string' ? one.value : JSON.stringify(one.value, null, 2));
  return [
    h('ul.patch.changes-place', { tabIndex: 0, aria: { label: 'Changes' } }, patch.slice(0, CHANGES).map((one) => h('li', {}, h('span.chip', { data: { kind: KINDS[one.op] } }, WORDS[one.op] ?? one.op), h('code', {}, one.path || '/'), value(one) ? h('pre', { tabIndex: 0 }, h('code', {}, value(one).slice(0, 2_000))) : null))),
    patch.length > CHANGES ? h('p.hint', {}, `${count(patch.length - CHANGES)} more changes are not shown.`) : null,
  ];
}
