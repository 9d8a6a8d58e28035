// Package browser looks at reports as a person's browser does: headless Chromium
// opens what flatline wrote of recorded runs.
package browser

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// pages are the commands whose pages are looked at, with files from the root of the
// repository.
var pages = map[string][]string{
	"pass":         {"report", "pkg/judge/testdata/csr-denied-fast.jsonl.gz"},
	"default":      {"report", "pkg/judge/testdata/csr-denied-default.jsonl.gz"},
	"everyone":     {"report", "docs/evidence/csr-denied-everyone-fast"},
	"crash-loop":   {"report", "docs/evidence/cert-unreadable-restart-fast/20261129t202129z-e9c1.jsonl.gz"},
	"orphans":      {"report", "docs/evidence/cert-readonly-rotation-fast/20261129t202540z-35f4.jsonl.gz"},
	"not-ready":    {"report", "docs/evidence/containerd-frozen-fast/20261129t205339z-5268.jsonl.gz"},
	"fail":         {"report", "internal/report/testdata/fail.jsonl.gz"},
	"not-injected": {"report", "internal/report/testdata/not-injected.jsonl.gz"},
	"censored":     {"report", "internal/report/testdata/censored.jsonl.gz"},
	"overlay":      {"report", "docs/evidence/csr-denied-fast"},
}

// chromium finds the browser. A test that cannot look must not pass.
func chromium(t *testing.T) string {
	t.Helper()
	for _, name := range []string{os.Getenv("CHROMIUM"), "chromium", "chromium-browser", "google-chrome"} {
		if name == "" {
			continue
		}
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Fatal("no Chromium: hack/browser/setup installs it on Debian, or name it in CHROMIUM")
	return ""
}

// build makes flatline and returns a function that writes a page.
func build(t *testing.T) func(name string, args []string) string {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cmd := exec.Command("go", "build", "-buildvcs=false", "-o", filepath.Join(dir, "flatline"), ".")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return func(name string, args []string) string {
		file := filepath.Join(dir, name+".html")
		cmd := exec.Command(filepath.Join(dir, "flatline"), append(args, "--file", file)...)
		cmd.Dir = root
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", name, err, out)
		}
		return file
	}
}

// A visitor is a browser tab that notes what a page must not do.
type visitor struct {
	ctx context.Context
	mu  sync.Mutex
	bad []string
}

func (v *visitor) note(format string, args ...any) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.bad = append(v.bad, fmt.Sprintf(format, args...))
}

func (v *visitor) complaints() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	bad := v.bad
	v.bad = nil
	return bad
}

func newVisitor(t *testing.T) *visitor {
	opts := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(chromium(t)), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true))
	alloc, cancel := chromedp.NewExecAllocator(t.Context(), opts...)
	t.Cleanup(cancel)
	ctx, cancel := chromedp.NewContext(alloc)
	t.Cleanup(cancel)
	v := &visitor{ctx: ctx}
	err := chromedp.Listen(ctx, func(e any) {
		switch e := e.(type) {
		case *runtime.EventConsoleAPICalled:
			v.note("the console says %s", e.Type)
		case *runtime.EventExceptionThrown:
			v.note("a script fails: %s", e.ExceptionDetails.Text)
		case *log.EventEntryAdded:
			v.note("the log says %s", e.Entry.Text)
		case *network.EventRequestWillBeSent:
			if !strings.HasPrefix(e.Request.URL, "file:") && !strings.HasPrefix(e.Request.URL, "data:") {
				v.note("it asks for %s", e.Request.URL)
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	_, err1 := chromedp.Call(ctx, network.Enable, network.EnableParams{})
	_, err2 := chromedp.Call(ctx, log.Enable, cdp.Empty{})
	_, err3 := chromedp.Call(ctx, runtime.Enable, cdp.Empty{})
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	return v
}

// open shows a page in a width and a theme.
func (v *visitor) open(file string, width int64, theme string) error {
	_, err1 := chromedp.Call(v.ctx, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: width, Height: 900, DeviceScaleFactor: 1})
	err2 := v.media("screen", theme)
	_, err3 := chromedp.Run(v.ctx, chromedp.Navigate("file://"+file))
	return errors.Join(err1, err2, err3)
}

func (v *visitor) media(kind, theme string) error {
	_, err := chromedp.Call(v.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Media: kind,
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: theme}}})
	return err
}

// ask evaluates an expression in the page.
func ask[T any](t *testing.T, v *visitor, expression string) T {
	t.Helper()
	answer, err := chromedp.Run(v.ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

// The page of a comparison has a drawing for each row of its table, and nothing is cut off.
func TestComparison(t *testing.T) {
	file := build(t)("comparison", []string{"compare", "--col", "kube-controller-manager.node-monitor-grace-period", "-o", "html", "docs/evidence/tune"})
	selfContained(t, file)
	v := newVisitor(t)
	for _, theme := range []string{"light", "dark"} {
		for _, width := range []int64{360, 800, 1400} {
			if err := v.open(file, width, theme); err != nil {
				t.Fatal(err)
			}
			at := fmt.Sprintf("%s, %d pixels", theme, width)
			sound(t, v, at)
			if n := ask[[]int](t, v, `[document.querySelectorAll("figure svg").length, document.querySelectorAll("tbody tr").length]`); n[0] < 10 || n[0] != n[1] {
				t.Errorf("%s: %d drawings, %d rows", at, n[0], n[1])
			}
			for _, w := range ask[[]string](t, v, figures) {
				t.Errorf("%s: %s", at, w)
			}
		}
	}
}

// figures lists what is cut off in the drawings of a comparison.
const figures = `(() => {
  const wrong = [];
  for (const svg of document.querySelectorAll("figure svg")) {
    const box = svg.getBoundingClientRect(), name = svg.getAttribute("aria-label");
    if (!name) wrong.push("a drawing without a name");
    for (const e of svg.querySelectorAll("text, circle, rect, .median")) {
      const r = e.getBoundingClientRect();
      if (r.left < box.left - 1 || r.right > box.right + 1 || r.top < box.top - 1 || r.bottom > box.bottom + 1) wrong.push(name + ": cut off: " + (e.textContent || e.outerHTML));
    }
  }
  return wrong;
})()`

func TestReports(t *testing.T) {
	write := build(t)
	v := newVisitor(t)
	for name, records := range pages {
		t.Run(name, func(t *testing.T) {
			file := write(name, records)
			selfContained(t, file)
			for _, theme := range []string{"light", "dark"} {
				for _, width := range []int64{360, 800, 1400} {
					if err := v.open(file, width, theme); err != nil {
						t.Fatal(err)
					}
					at := fmt.Sprintf("%s, %d pixels", theme, width)
					look(t, v, at, name != "overlay")
				}
			}
			inPrint(t, v)
		})
	}
}

// selfContained: one file, without scripts and without anything from elsewhere.
func selfContained(t *testing.T, file string) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if len(data) > 2_000_000 {
		t.Errorf("%d bytes, more than 2 MB", len(data))
	}
	text := strings.ReplaceAll(string(data), "http://www.w3.org/2000/svg", "") // a name, not an address
	for _, no := range []string{"<script", "http:", "https:", "@import", " src="} {
		if strings.Contains(text, no) {
			t.Errorf("there is %q in it", no)
		}
	}
}

// sound: no complaint, nothing wider than the window, nothing hard to read.
func sound(t *testing.T, v *visitor, at string) {
	t.Helper()
	for _, bad := range v.complaints() {
		t.Errorf("%s: %s", at, bad)
	}
	wide := ask[struct{ Page, Window int }](t, v, `({Page: document.documentElement.scrollWidth, Window: window.innerWidth})`)
	if wide.Page > wide.Window {
		t.Errorf("%s: the page is %d pixels wide", at, wide.Page)
	}
	for _, text := range ask[[]string](t, v, contrast) {
		t.Errorf("%s: contrast %s", at, text)
	}
}

func look(t *testing.T, v *visitor, at string, marks bool) {
	t.Helper()
	sound(t, v, at)
	for _, w := range ask[[]string](t, v, drawings) {
		t.Errorf("%s: %s", at, w)
	}
	if !marks {
		return
	}
	found := ask[struct {
		Rows, Marks int
		Wrong       []string
	}](t, v, positions)
	for _, w := range found.Wrong {
		t.Errorf("%s: %s", at, w)
	}
	if found.Rows == 0 || found.Marks < found.Rows {
		t.Errorf("%s: %d milestones in the table, %d marks in the drawing", at, found.Rows, found.Marks)
	}
}

// inPrint: paper shows the wide drawing, whatever the window was.
func inPrint(t *testing.T, v *visitor) {
	t.Helper()
	if err := v.media("print", "light"); err != nil {
		t.Fatal(err)
	}
	shown := ask[[]string](t, v, `[...document.querySelectorAll("svg.run")].filter(s => s.getClientRects().length).map(s => s.parentElement.className)`)
	if len(shown) != 1 || shown[0] != "wide" {
		t.Errorf("in print %q is shown, want the wide drawing", shown)
	}
}

// positions holds every milestone of the table against its mark: the place of the
// mark on the axis must be its time.
const positions = `(() => {
  const svg = [...document.querySelectorAll("svg.run")].find(s => s.getClientRects().length);
  const grid = [...svg.querySelectorAll("line.grid")].map(l => ({t: +l.dataset.t, x: l.getBoundingClientRect().x}));
  const a = grid[0], b = grid[grid.length - 1];
  const x = t => a.x + (t - a.t) / (b.t - a.t) * (b.x - a.x);
  const key = e => [e.dataset.milestone, e.dataset.node, e.dataset.seconds].join(" ");
  const marks = new Map();
  for (const m of svg.querySelectorAll("g.mark")) marks.set(key(m), m);
  const rows = [...document.querySelectorAll("tr[data-milestone][data-seconds]")];
  const wrong = [];
  for (const r of rows) {
    const m = marks.get(key(r));
    if (!m) { wrong.push(key(r) + " has no mark"); continue; }
    const at = m.querySelector("line.stem").getBoundingClientRect().x, want = x(+r.dataset.seconds);
    if (Math.abs(at - want) > 0.6) wrong.push(key(r) + " is drawn at " + at + ", its time is at " + want);
  }
  const known = new Set(rows.map(key));
  for (const [k, m] of marks) if (m.dataset.seconds && !known.has(k)) wrong.push("the mark " + k + " is not in the table");
  return {Rows: rows.length, Marks: marks.size, Wrong: wrong};
})()`

// drawings: the visible one has title and description, and no text outside.
const drawings = `(() => {
  const wrong = [];
  const shown = [...document.querySelectorAll("svg.run")].filter(s => s.getClientRects().length);
  if (shown.length != 1) return [shown.length + " drawings are shown"];
  const svg = shown[0], box = svg.getBoundingClientRect();
  for (const id of svg.getAttribute("aria-labelledby").split(" "))
    if (!(document.getElementById(id) || {}).textContent) wrong.push("nothing is said as " + id);
  for (const t of svg.querySelectorAll("text")) {
    const r = t.getBoundingClientRect();
    if (r.left < box.left - 1 || r.right > box.right + 1) wrong.push("cut off: " + t.textContent);
  }
  return wrong;
})()`

// contrast lists texts with less than 4.5 to 1 (WCAG 2 AA) against what is behind
// them: the nearest background, the band that a text is written on, or the paper
// with the shade of the fault on it.
const contrast = `(() => {
  const rgb = s => { const m = s.match(/[\d.]+/g).map(Number); return {c: m.slice(0, 3), a: m.length > 3 ? m[3] : 1}; };
  const lin = v => (v /= 255) <= 0.03928 ? v / 12.92 : Math.pow((v + 0.055) / 1.055, 2.4);
  const lum = c => 0.2126 * lin(c[0]) + 0.7152 * lin(c[1]) + 0.0722 * lin(c[2]);
  const ratio = (a, b) => { const [x, y] = [lum(a), lum(b)].sort((p, q) => q - p); return (x + 0.05) / (y + 0.05); };
  const blend = (under, over, a) => under.map((u, i) => u * (1 - a) + over[i] * a);
  const paper = rgb(getComputedStyle(document.body).backgroundColor).c;
  const behind = e => { for (; e; e = e.parentElement) { const b = rgb(getComputedStyle(e).backgroundColor); if (b.a > 0.99) return b.c; } return paper; };
  const bandBehind = t => {
    let rect = t.previousElementSibling;
    while (rect.tagName != "rect") rect = rect.previousElementSibling;
    let fill = getComputedStyle(rect).fill;
    const url = fill.match(/url\("?#(\w+)/);
    if (url) fill = getComputedStyle(document.querySelector("#" + url[1] + " rect")).fill;
    return fill == "none" ? paper : rgb(fill).c;
  };
  const low = [];
  const check = (text, ink, ground) => { const r = ratio(ink, ground); if (r < 4.5) low.push(r.toFixed(2) + " of " + text); };
  const shade = document.querySelector("svg.run .shade.fault");
  for (const t of document.querySelectorAll("svg.run text")) {
    if (!t.getClientRects().length) continue;
    const ink = rgb(getComputedStyle(t).fill).c;
    if (t.classList.contains("in")) { check(t.textContent, ink, bandBehind(t)); continue; }
    check(t.textContent, ink, paper);
    if (shade) check(t.textContent + " on the shade", ink, blend(paper, rgb(getComputedStyle(shade).fill).c, +getComputedStyle(shade).opacity));
  }
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let n = walker.nextNode(); n; n = walker.nextNode()) {
    const e = n.parentElement;
    if (!n.textContent.trim() || e.closest("svg") || !e.getClientRects().length) continue;
    check(n.textContent.trim(), rgb(getComputedStyle(e).color).c, behind(e));
  }
  return [...new Set(low)];
})()`
