// Elements without a framework: made by a function, and lists of them kept in step with what they show.

/**
 * Makes an element. `props` sets properties where the element has them and attributes elsewhere; `on…` listens; `class`,
 * `data` and `aria` are what they are called. Children that are null or false are left out; text stays text.
 */
export function h(tag, props = {}, ...children) {
  const [name, ...classes] = tag.split('.');
  const element = document.createElement(name || 'div');
  if (classes.length) element.className = classes.join(' ');
  set(element, props);
  append(element, children);
  return element;
}

/** Sets properties and attributes as `h` does. */
export function set(element, props) {
  for (const [key, value] of Object.entries(props)) {
    if (key.startsWith('on') && typeof value === 'function') element.addEventListener(key.slice(2), value);
    else if (key === 'class') element.className = value;
    else if (key === 'data') for (const [k, v] of Object.entries(value)) setData(element, k, v);
    else if (key === 'aria') for (const [k, v] of Object.entries(value)) setAttribute(element, `aria-${k}`, v);
    else if (key in element && key !== 'list' && key !== 'form' && key !== 'role') element[key] = value ?? '';
    else setAttribute(element, key, value);
  }
  return element;
}

function setAttribute(element, name, value) {
  if (value === null || value === undefined || value === false && !name.startsWith('aria-')) element.removeAttribute(name);
  else element.setAttribute(name, String(value));
}

function setData(element, name, value) {
  if (value === null || value === undefined || value === false) delete element.dataset[name];
  else element.dataset[name] = value === true ? '' : String(value);
}

/** Appends children; arrays are flattened. */
export function append(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child);
  }
}

/** Puts children in the place of all that is there. */
export function replace(element, ...children) {
  element.replaceChildren();
  append(element, children);
  return element;
}

/** Sets the text only where it is another one: what somebody selected in it stays selected. */
export function text(element, value) {
  if (element.textContent !== value) element.textContent = value;
  return element;
}

/**
 * Keeps the children of `parent` in step with `items`. Each has a key; its element is made once by `make(item)` and told by
 * `update(element, item)` when the item is another object than before. Elements keep their focus, and their scroll where
 * they stay in place.
 */
export function keyed(parent, items, keyOf, make, update = () => {}) {
  const kept = parent.keyed ?? new Map();
  const next = new Map();
  const focused = parent.contains(document.activeElement) ? document.activeElement : null;
  let place = parent.firstElementChild;
  for (const item of items) {
    const key = keyOf(item);
    let entry = kept.get(key);
    if (!entry) {
      entry = { element: make(item), item: undefined };
    }
    if (entry.item !== item) {
      update(entry.element, item);
      entry.item = item;
    }
    next.set(key, entry);
    if (entry.element === place) place = place.nextElementSibling;
    else parent.insertBefore(entry.element, place);
  }
  for (const [key, entry] of kept) if (next.get(key)?.element !== entry.element) entry.element.remove();
  parent.keyed = next;
  // An element that is moved loses it.
  if (focused !== document.activeElement && parent.contains(focused)) focused.focus();
}

const SVG = 'http://www.w3.org/2000/svg';
const ICONS = {
  menu: 'M4 7h16M4 12h16M4 17h16',
  plus: 'M12 5v14M5 12h14',
  close: 'M6 6l12 12M18 6L6 18',
  send: 'M5 12l14-7-5 14-3-6z',
  stop: 'M7 7h10v10H7z',
  sun: 'M12 8a4 4 0 100 8 4 4 0 000-8zM12 2v2M12 20v2M2 12h2M20 12h2M5 5l1.5 1.5M17.5 17.5L19 19M5 19l1.5-1.5M17.5 6.5L19 5',
  moon: 'M20 14.5A8 8 0 119.5 4a6.5 6.5 0 0010.5 10.5z',
  key: 'M15.5 3.5a5 5 0 100 10 5 5 0 000-10zM12 12l-8 8M7 17l2.5 2.5',
  copy: 'M9 9h10v11H9zM5 15V4h10',
  fork: 'M7 4v16M7 12c6 0 10-2 10-8',
  side: 'M4 5h16v10H9l-5 4z',
  back: 'M9 7L4 12l5 5M4 12h10a6 6 0 010 12',
  dots: 'M5 12h.01M12 12h.01M19 12h.01',
  tool: 'M14 6a4 4 0 014.9 4.9l-8.4 8.4a2 2 0 01-2.8-2.8L16 8z',
  think: 'M12 3a6 6 0 00-3 11v3h6v-3a6 6 0 00-3-11zM10 21h4',
  question: 'M9 9a3 3 0 114 3c-1 .5-1 1-1 2M12 18h.01',
  chat: 'M4 5h16v11H10l-4 4v-4H4z',
  archive: 'M4 5h16v4H4zM6 9v10h12V9M10 13h4',
  up: 'M12 19V5M6 11l6-6 6 6',
  edit: 'M4 20h4L19 9l-4-4L4 16z',
  trash: 'M5 7h14M10 7V4h4v3M7 7l1 13h8l1-13',
  check: 'M5 13l4 4L19 7',
  worker: 'M8 4h8v6H8zM12 10v4M6 14h12v6H6z',
  clock: 'M12 4a8 8 0 100 16 8 8 0 000-16zM12 8v4l3 2',
};

/** A small drawing, for the eye alone: what it says stands in words beside it or in a label. */
export function icon(name) {
  const svg = document.createElementNS(SVG, 'svg');
  svg.setAttribute('viewBox', '0 0 24 24');
  svg.setAttribute('class', 'icon');
  svg.setAttribute('aria-hidden', 'true');
  const path = document.createElementNS(SVG, 'path');
  path.setAttribute('d', ICONS[name] ?? '');
  svg.append(path);
  return svg;
}

/** A button with a drawing alone; `label` says what it does. */
export function iconButton(name, label, onclick, props = {}) {
  return h('button.icon-button', { type: 'button', title: label, aria: { label }, onclick, ...props }, icon(name));
}
