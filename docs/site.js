// Examples are sessions: what is copied is what was typed, without prompts and results.
document.addEventListener("click", (event) => {
  const button = event.target.closest(".md-code__button[data-clipboard-target], .md-clipboard[data-clipboard-target]");
  const code = button && document.querySelector(button.dataset.clipboardTarget);
  const typed = code ? code.textContent.split("\n").filter((line) => /^(>>>|\.\.\.)( |$)/.test(line)) : [];
  if (typed.length) button.dataset.clipboardText = typed.map((line) => line.slice(4)).join("\n") + "\n";
}, true);
