// Returns the beginnings of elements that a screen reader could not name.
() => [...document.querySelectorAll("button, a, input, select, [role=img], [role=region], table")]
  .filter((each) => each.checkVisibility())
  .filter((each) => !(each.ariaLabel || each.textContent.trim() || each.labels?.length || each.getAttribute("aria-labelledby")))
  .map((each) => each.outerHTML.slice(0, 100))
