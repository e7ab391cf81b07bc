// A file of its own and not a module, so that it runs before the first paint under a policy without inline scripts.
(function () {
  try {
    const theme = localStorage.getItem("acker-theme");
    if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  } catch {
    // Storage may be forbidden: the system's theme it is.
  }
})();
