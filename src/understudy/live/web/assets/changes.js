// Changes what is shown where it differs, and nothing else: focus, scroll and selection stay.

export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Makes the inside of an element what the service wrote; `html` is its own, and escaped there. */
export function setFragment(element, html) {
  const template = document.createElement("template");
  template.innerHTML = html;
  matchChildren(element, template.content);
}

function matchChildren(element, wanted) {
  const kept = [...element.childNodes];
  const nodes = [...wanted.childNodes];
  nodes.forEach((node, i) => {
    if (i >= kept.length) element.append(node);
    else match(kept[i], node);
  });
  for (const node of kept.slice(nodes.length)) node.remove();
}

function match(node, wanted) {
  if (node.nodeName !== wanted.nodeName) {
    node.replaceWith(wanted);
  } else if (node.nodeType !== Node.ELEMENT_NODE) {
    if (node.data !== wanted.data) node.data = wanted.data;
  } else {
    matchAttributes(node, wanted);
    matchChildren(node, wanted);
  }
}

function matchAttributes(element, wanted) {
  for (const { name } of [...element.attributes]) {
    if (!wanted.hasAttribute(name)) element.removeAttribute(name);
  }
  for (const { name, value } of wanted.attributes) {
    if (element.getAttribute(name) !== value) element.setAttribute(name, value);
  }
}
