// Light or dark as somebody chose it, before anything is painted. Without a choice the system's preference rules, in style.css.
// A classic script on purpose: a module would come after the first paint.
(() => {
  const chosen = localStorage.getItem('scrollback.theme');
  if (chosen === 'light' || chosen === 'dark') document.documentElement.dataset.theme = chosen;
})();
