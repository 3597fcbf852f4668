// Markdown of people and agents, made into elements that can do nothing: no scripts, no styles, no frames, no requests.
//
// The only place where foreign text becomes HTML.

import { Marked } from '../vendor/marked.esm.js';
import DOMPurify from '../vendor/purify.es.mjs';

const ALLOWED = {
  ALLOWED_TAGS: [
    'a', 'b', 'blockquote', 'br', 'code', 'del', 'em', 'h1', 'h2', 'h3', 'h4', 'h5', 'h6', 'hr', 'i', 'li', 'ol', 'p', 'pre',
    's', 'strong', 'sub', 'sup', 'table', 'tbody', 'td', 'th', 'thead', 'tr', 'ul',
  ],
  ALLOWED_ATTR: ['href', 'title', 'start', 'align'],
  ALLOWED_URI_REGEXP: /^(?:https?:|mailto:|#)/i,
  ALLOW_DATA_ATTR: false,
  ALLOW_ARIA_ATTR: false,
  RETURN_DOM_FRAGMENT: true,
};

/** HTML in a text is text, and an image is a link: a page asks nobody else for anything. */
const MARKED = new Marked({
  gfm: true,
  breaks: true,
  async: false,
  renderer: {
    html: ({ text }) => escaped(text),
    image: ({ href, text }) => `<a href="${escaped(href)}">${escaped(text || href)}</a>`,
  },
});

/** A fragment of what `text` says. */
export function markdown(text) {
  const fragment = DOMPurify.sanitize(MARKED.parse(text), ALLOWED);
  for (const link of fragment.querySelectorAll('a')) {
    link.target = '_blank';
    link.rel = 'noopener noreferrer nofollow';
  }
  // The page has its own headings: those of a text come below them.
  for (const heading of fragment.querySelectorAll('h1, h2, h3, h4, h5, h6')) heading.replaceWith(asBold(heading));
  for (const block of fragment.querySelectorAll('pre, table')) reachable(block);
  return fragment;
}

/** Where a link is defined, only the whole text has it. */
const DEFINES = /^ {0,3}\[[^\]]+\]:/m;

/** A text that grows in `element`, as an answer does: its blocks that are over stay as they are, the last ones are made anew. */
export class Growing {
  #over = '';
  #last = [];

  constructor(element) {
    this.element = element;
  }

  show(text) {
    if (!text.startsWith(this.#over) || DEFINES.test(text)) {
      this.element.replaceChildren();
      [this.#over, this.#last] = ['', []];
    }
    const rest = text.slice(this.#over.length);
    const blocks = DEFINES.test(text) ? [] : MARKED.lexer(rest);
    // The last two may still become one, such as a list and the number of its next entry.
    const second = blocks.map((block) => block.type !== 'space').reduce((found, counts, at) => (counts ? [found[1], at] : found), [0, 0])[0];
    const said = blocks.slice(0, second).map((block) => block.raw).join('');
    for (const node of this.#last) node.remove();
    // Where the parser has other line ends than the text, nothing is over.
    const isSame = rest.startsWith(said);
    if (isSame && said) {
      this.element.append(markdown(said));
      this.#over += said;
    }
    const last = markdown(isSame ? rest.slice(said.length) : rest);
    this.#last = [...last.childNodes];
    this.element.append(last);
  }
}

const escaped = (text) => text.replace(/[&<>"']/g, (one) => `&#${one.charCodeAt(0)};`);

function asBold(heading) {
  const paragraph = document.createElement('p');
  paragraph.className = `said-heading level-${heading.localName[1]}`;
  const strong = document.createElement('strong');
  strong.append(...heading.childNodes);
  paragraph.append(strong);
  return paragraph;
}

/** What is wider than its place can be scrolled by keyboard too. */
function reachable(block) {
  if (block.localName === 'pre') {
    block.tabIndex = 0;
    return;
  }
  const around = document.createElement('div');
  around.className = 'scroll-x';
  around.tabIndex = 0;
  block.replaceWith(around);
  around.append(block);
}
