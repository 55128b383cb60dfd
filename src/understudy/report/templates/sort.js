for (const table of document.querySelectorAll("table")) {
  const body = table.tBodies[0];
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    if (body.rows.length < 3) return;
    const key = (row) => row.cells[column].dataset.value;
    const compare = (a, b) =>
      key(a) === undefined && key(b) === undefined
        ? a.cells[column].textContent.localeCompare(b.cells[column].textContent, undefined, { numeric: true })
        : (Number(key(a) ?? NaN) - Number(key(b) ?? NaN)) || (key(a) === undefined) - (key(b) === undefined);
    const button = document.createElement("button");
    button.append(...head.childNodes);
    button.addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") === "descending" || (head.className === "words" && !head.hasAttribute("aria-sort"));
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      body.append(...[...body.rows].sort((a, b) => (up ? compare(a, b) : compare(b, a))));
    });
    head.append(button);
  });
}
