"""The report in a browser: headless Chromium without network, light and dark, wide and narrow, and on paper."""

import html
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

from comparison import report, report_samples

# Looks at the report from outside, in frames of the widths of a telephone and of a desk, since the report allows no script of
# its own. Ends as JSON in the document, which --dump-dom prints.
WIDTHS = (400, 1280)
LOOK = """<!doctype html><meta charset="utf-8"><meta name="color-scheme" content="light dark">
<script>
function look(frame) {
  const page = frame.contentDocument, shown = (node) => { const box = node.getBoundingClientRect(); return [box.width, box.height]; };
  return {
    requests: frame.contentWindow.performance.getEntriesByType('resource').map((entry) => entry.name),
    background: frame.contentWindow.getComputedStyle(page.body).backgroundColor,
    overflow: page.documentElement.scrollWidth - page.documentElement.clientWidth,
    figures: [...page.querySelectorAll('figure')].map((figure) => ({
      title: figure.querySelector('figcaption').textContent, label: figure.querySelector('svg').getAttribute('aria-label'),
      box: shown(figure.querySelector('svg')), text: [...figure.querySelectorAll('text')].map((node) => node.textContent.trim()),
      height: Math.min(...[...figure.querySelectorAll('text')].map((node) => node.getBoundingClientRect().height)),
      tooltips: figure.querySelectorAll('title').length,
      colours: [...new Set([...figure.querySelectorAll('path, use')].flatMap((node) => {
        const style = frame.contentWindow.getComputedStyle(node);
        return [style.stroke, style.fill];
      }))]})),
    tables: page.querySelectorAll('table').length,
  };
}
onload = () => {
  document.title = 'done';
  const frames = [...document.querySelectorAll('iframe')];
  document.querySelector('pre').textContent = JSON.stringify(Object.fromEntries(frames.map((frame) => [frame.width, look(frame)])));
};
</script><pre></pre>"""

BLUE = {"light": "rgb(0, 114, 178)", "dark": "rgb(86, 180, 233)"}  # of offload


class BrowserTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.chromium = shutil.which("chromium")
        assert cls.chromium, "chromium is not installed (scripts/setup --tests does it)"
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.report = cls.folder / "report.html"
        report.write_report(report_samples.results(), cls.report)
        frames = "".join(f'<iframe src="report.html" width="{width}" height="900"></iframe>' for width in WIDTHS)
        (cls.folder / "look.html").write_text(LOOK + frames, encoding="utf-8")
        cls.light, cls.dark = (cls.look(scheme) for scheme in ("light", "dark"))

    @classmethod
    def browser(cls, *arguments: str) -> str:
        command = [cls.chromium, "--headless", "--disable-gpu", "--disable-dev-shm-usage", "--allow-file-access-from-files",
                   f"--user-data-dir={cls.folder / 'profile'}", "--host-resolver-rules=MAP * ~NOTFOUND", *arguments]
        if os.geteuid() == 0:
            command.append("--no-sandbox")  # Chromium has none for root
        return subprocess.run(command, capture_output=True, text=True, timeout=240, check=True, cwd=cls.folder).stdout

    @classmethod
    def look(cls, scheme: str) -> dict:
        number = {"dark": 0, "light": 1}[scheme]
        document = cls.browser(f"--blink-settings=preferredColorScheme={number}", "--virtual-time-budget=10000", "--dump-dom",
                               (cls.folder / "look.html").as_uri())
        found = re.search(r"<pre>(\{.*\})</pre>", document)
        assert found, f"Chromium did not load the report: {document[-500:]}"
        return json.loads(html.unescape(found[1]))

    def each(self):
        return [(scheme, width, seen[str(width)]) for scheme, seen in (("light", self.light), ("dark", self.dark)) for width in WIDTHS]

    def test_the_plots_are_there(self):
        for scheme, width, seen in self.each():
            titles = [figure["title"] for figure in seen["figures"]]
            for title in ("Operations a second, idle machine", "Latency distribution", "Latency percentiles", "Processor time per operation",
                          "Who had the processors", "Latency of a write"):
                self.assertIn(title, titles)
            self.assertGreater(sum(title.startswith("gwrite + flush") for title in titles), 3)
            for title in ("Latency distribution, update", "Latency percentiles, update", "Latency distribution, read", "Latency percentiles, read"):
                self.assertIn(title, titles)
            self.assertEqual(titles.count("Operations a second, idle machine"), 2)  # db_bench's and YCSB's
            for figure in seen["figures"]:
                with self.subTest(scheme=scheme, width=width, figure=figure["title"]):
                    self.assertGreater(figure["box"][0], 300)
                    self.assertGreater(figure["box"][1], 80)
                    self.assertGreater(len(figure["text"]), 5)
                    self.assertGreater(figure["height"], 8)  # pixels of the smallest text
                    self.assertGreater(figure["tooltips"], 0)
                    self.assertTrue(figure["label"])
            self.assertGreater(seen["tables"], 5)

    def test_axes_have_titles(self):
        for figure in self.light["400"]["figures"]:
            self.assertTrue(any(re.search(r"operation|processor|latency of a write|replicas in the chain", text) for text in figure["text"]),
                            f"{figure['title']}: {figure['text']}")

    def test_light_and_dark_colour_page_and_plots(self):
        def brightness(seen: dict) -> int:
            return sum(int(part) for part in re.findall(r"\d+", seen["background"])[:3])

        self.assertGreater(brightness(self.light["1280"]), 700)
        self.assertLess(brightness(self.dark["1280"]), 120)
        for scheme, _, seen in self.each():
            plots = [figure for figure in seen["figures"] if "offload" in figure["text"] and figure["title"] == "Latency distribution"]
            self.assertTrue(plots)
            for figure in plots:
                self.assertIn(BLUE[scheme], figure["colours"])
                self.assertNotIn(BLUE["dark" if scheme == "light" else "light"], figure["colours"])

    def test_nothing_is_requested_and_the_page_does_not_scroll_sideways(self):
        for _, _, seen in self.each():
            self.assertEqual(seen["requests"], [])
            self.assertLessEqual(seen["overflow"], 0)

    def pages(self, page: pathlib.Path) -> int:
        self.browser("--print-to-pdf=report.pdf", "--no-pdf-header-footer", page.as_uri())
        printed = (self.folder / "report.pdf").read_bytes()
        self.assertTrue(printed.startswith(b"%PDF"))
        return len(re.findall(rb"/Type /Page\b", printed))

    def test_it_prints_without_what_is_folded_away(self):
        results = report_samples.results()
        for each in results["cases"]:
            for run in each["runs"]:
                run["rnic_counters"] = {f"replica0.counter_{number}": number for number in range(1, 200)}
        many = self.folder / "many.html"
        report.write_report(results, many)
        pages = self.pages(self.report)
        self.assertGreater(pages, 2)
        self.assertEqual(self.pages(many), pages)


if __name__ == "__main__":
    unittest.main()
