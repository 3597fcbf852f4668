// What things are called where they are shown.

/** Text that may be plain or markdown, as plain text. */
export const plain = (value) => (typeof value === 'string' ? value : (value?.markdown ?? ''));

export const titleOfSession = (summary) => summary?.title || 'New session';

/** A chat's own title, else what it is. */
export function titleOfChat(chat) {
  if (chat?.title) return chat.title;
  return { fork: 'Fork', sideChat: 'Side chat', tool: 'Worker' }[chat?.origin?.kind] ?? 'New chat';
}

/** Who sent a message, by its principal, seen by `me`. */
export function sender(message, me) {
  const principal = message._meta?.['scrollback.sender'];
  if (message.origin?.kind === 'tool') return 'The agent';
  if (message.origin?.kind !== 'user') return 'The host';
  if (!principal) return 'Somebody';
  if (principal === me.principal) return 'You';
  return principal.replace(/^(user|root):/, '');
}

export const ACTIVITIES = { idle: '', running: 'running', waiting: 'waits for you', error: 'error' };
export const ORIGIN_ICONS = { fork: 'fork', sideChat: 'side', tool: 'worker', user: 'chat' };
