// Opens the page of one run by a link that works once, whose secret stands behind `#`.
const secret = location.hash.slice(1);

async function open() {
  history.replaceState(null, "", location.pathname); // the secret stays in no history
  const answer = await fetch("/api/v1/open", {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ secret }),
  });
  const in_already = !answer.ok && (await fetch("/api/v1/users/me")).ok; // the link was used in this browser
  if (answer.ok || in_already) location.replace("/");
  else document.getElementById("problem").textContent = (await answer.json()).detail;
}

if (secret) open();
