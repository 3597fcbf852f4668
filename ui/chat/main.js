// The chat window.

import { h, replace } from '../shared/dom.js';
import { topBar } from '../shared/frame.js';
import { takeFromAddress } from '../shared/token.js';

takeFromAddress();
replace(document.body, topBar('chat'), h('main.page', { id: 'main' }, h('h1', {}, 'Scrollback'), h('p.lead', {}, 'An Agent Host Protocol host whose chats are logs.')));
