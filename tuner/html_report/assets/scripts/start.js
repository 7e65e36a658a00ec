// Figures stand for their tables; a link to a trial opens it.
if (canDraw()) {
  for (const numbers of document.querySelectorAll("details.numbers")) numbers.open = false;
  idle(() => unpackForPrint().catch(plainly));
  if (panel) ofLink();
}
