// Figures stand for their tables; a link to a trial opens it.
if (canDraw()) {
  for (const numbers of document.querySelectorAll("details.numbers")) numbers.open = false;
  const idle = window.requestIdleCallback ?? ((call) => setTimeout(call, 200));
  idle(() => plotly().catch(plainly));
  if (panel) ofLink();
}
