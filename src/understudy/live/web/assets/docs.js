// Shows the operations of the service with Swagger UI, which takes them from openapi.json.

const dark = matchMedia("(prefers-color-scheme: dark)");

function follow() {
  document.documentElement.classList.toggle("dark-mode", dark.matches);
}

follow();
dark.addEventListener("change", follow);
window.SwaggerUIBundle({
  url: "openapi.json",
  dom_id: "#operations",
  deepLinking: true,
  persistAuthorization: false,
  validatorUrl: null,
});
