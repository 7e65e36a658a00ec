// At the first sign of a reader all of the page is laid out, and the figures that are near are drawn.
const SIGNS = ["pointermove", "pointerdown", "touchstart", "wheel", "keydown", "focusin", "scroll", "hashchange", "beforeprint"];

function wake() {
  document.documentElement.classList.remove("resting");
  for (const sign of SIGNS) window.removeEventListener(sign, wake, true);
  lookAhead();
}

for (const sign of SIGNS) window.addEventListener(sign, wake, { capture: true, passive: true });

// Figures stand for their tables; a link to a trial opens it.
if (canDraw()) {
  for (const numbers of document.querySelectorAll("details.numbers")) numbers.open = false;
  idle(() => unpackForPrint().catch(plainly));
  if (panel) ofLink();
  if (location.hash) wake();
}
