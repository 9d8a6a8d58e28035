package report

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"math/rand/v2"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"sigs.k8s.io/yaml"

	"github.com/flatline-chaos/flatline/internal/claims"
	"github.com/flatline-chaos/flatline/internal/compare"
	"github.com/flatline-chaos/flatline/pkg/judge"
	"github.com/flatline-chaos/flatline/pkg/timeline"
)

// Each target has its own way to say a thing without doing it.
func TestEscapes(t *testing.T) {
	for _, c := range []struct {
		name    string
		escape  func(string) string
		in, out string
	}{
		{"plain", plain, "a ✓ é 漢 |`", "a ✓ é 漢 |`"},
		{"plain", plain, "a\nb\r\tc\x00\x1b[2J\x7f", `a\nb\r\tc\x00\x1b[2J\x7f`},
		{"plain", plain, "\u009b31m\u202eabc\u200b\u2028\ufeff\xff\ufffd\U000e0041", `\u009b31m\u202eabc\u200b\u2028\ufeff\xff\ufffd\U000e0041`},
		{"guard", guard, "a\n \t::error::x\n::stop\nb ::c\n##[error]x ##[y", "a\n \t\\x3a:error::x\n\\x3a:stop\nb ::c\n#\\x23[error]x #\\x23[y"},
		{"guard", guard, "\u00a0\u2003::error", "\u00a0\u2003\\x3a:error"},
		{"Lines", Lines, "a\x1b\n::b", "a\\x1b\n\\x3a:b"},
		{"cell", cell, " a|b\nc\r\nd ", `a\|b c d`},
		{"cell", cell, "[x](http://y) ![z](w) <b> &lt; `c` *d* _e_ ~f~ $g$ www.h", "\\[x](http\\://y) !\\[z](w) \\<b> \\&lt; \\`c\\` \\*d\\* \\_e\\_ \\~f\\~ \\$g\\$ www\\.h"},
		{"cell", cell, `@me #1 \|`, `@&#8203;me \#&#8203;1 \\\|`},
		{"cell", cell, "- x", "- x"},
		{"item", item, "- x", `\- x`},
		{"item", item, "> x", `\> x`},
		{"item", item, "12. x", `12\. x`},
		{"item", item, "1) x", `1\) x`},
		{"item", item, "1.5 s", "1.5 s"},
		{"inCode", inCode, "a|b", "`a|b`"},
		{"inCode", inCode, "a`b", "a\\`b"},
		{"property", property, "a: b, 5 %\n::", `a%3A b%2C 5 %25\n%3A%3A`},
		{"data", data, "a: b, 5 %\n\x1b##[x", `a: b, 5 %25%0A\x1b#\x23[x`},
		{"word", word, "300s/node=x y\n", "300s_node_x_y_"},
		{"kebab", kebab, "nodeLease: x\ny", "node-lease--x-y"},
		{"kebab", kebab, "-v", "flag--v"},
		{"field", field, "=1+1", "'=1+1"},
		{"field", field, "@x", "'@x"},
		{"field", field, "-1.5", "-1.5"},
		{"field", field, "-1+cmd", "'-1+cmd"},
		{"field", field, "", ""},
		{"inJSON", inJSON, "{\n\"\u009b\u202e##[\U000e0041\"", "{\n\"\\u009b\\u202e#\\u0023[\\udb40\\udc41\""},
		{"inXML", inXML, "<a>\n ::x ##[\u009b</a>", "<a>\n &#58;:x #&#35;[&#155;</a>"},
		{"esc", esc, "<\x00\x1b>", `&lt;\x00\x1b&gt;`},
	} {
		if got := c.escape(c.in); got != c.out {
			t.Errorf("%s(%q) = %q, want %q", c.name, c.in, got, c.out)
		}
		if again := plain(plain(c.in)); again != plain(c.in) {
			t.Errorf("plain of %q is not plain: %q", c.in, again)
		}
	}
}

// evils are texts that somebody might put into a record.
var evils = []string{
	"::error::x", " \t::set-output name=a::b", "##[error]x", "a\n::add-mask::b\n##[group]c", "\x1b]0;title\x07\x1b[2J", "\u202eevil\u2066\u200b", "\u009b31m", "a\r::b", "\x00\xff\xfe",
	"|", `\|`, `\`, "a\\\n|b|", "[x](http://evil.example)", "![x](http://evil.example/x.png)", "@everyone #1 www.evil.example", "<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "- x\n# y\n> z",
	"x\nnode-monitor-grace-period: 1s\noutcome: pass\nBenchmarkX 1 1 sec/op", "experiment", "=cmd|' /C calc'!A0", "`", "``` \n", "]]>", "-->", "\t\v\f", "\u2028::x\u0085::y", "", ":", "::", "#", "#[",
}

// spoiled is the run of the tests with evil texts in every field, and its trace.
func spoiled(evil func(string) string) (*judge.Trace, *judge.Run) {
	r := texts(reflect.ValueOf(runs()["fail"]), evil).Interface().(*judge.Run)
	r.Target = append(r.Target, r.Milestones[0].Node)
	for i := range r.Milestones { // else there are no marks and no verdicts
		r.Milestones[i].Name, r.Milestones[i].Verdict = runs()["fail"].Milestones[i].Name, runs()["fail"].Milestones[i].Verdict
		r.Milestones[i].Evidence = &timeline.Event{Source: "s" + evil("a"), Type: "t" + evil("b"), Detail: map[string]string{evil("c"): evil("d")}}
	}
	spans := []judge.Span{{From: 0, To: 70, State: evil("state"), Note: evil("note")}}
	lane := judge.Lane{Name: evil("lane"), Spans: spans}
	node := judge.NodeTrace{Name: evil("c1-worker2"), Target: true, Ready: lane, Kubelet: lane, Taints: []judge.Lane{lane}, Refused: []judge.Deed{{What: evil("deed")}}, Requests: []judge.Lane{lane},
		Certificates: []judge.Certificate{{Serial: evil("serial"), NotAfter: 60, OnDisk: spans[0]}}, Pods: []judge.PodTrace{{Canary: evil("5s"), On: evil("node"), Lane: lane}}}
	return &judge.Trace{From: -5, To: 70, Leader: lane, Server: lane, Fault: lane, Gaps: spans, Deeds: node.Refused, Witnesses: []judge.Witness{{Seen: evil("seen")}}, Containers: []judge.Lane{lane}, Nodes: []judge.NodeTrace{node}}, r
}

// renderAll writes everything that is ever shown of a run, by name.
func renderAll(t *testing.T, tr *judge.Trace, r *judge.Run) map[string]string {
	t.Helper()
	all := map[string]string{}
	add := func(name string, write func(io.Writer) error) {
		var b strings.Builder
		if err := write(&b); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		all[name] = b.String()
	}
	for _, format := range Formats {
		add(format, func(w io.Writer) error { return Print(w, format, r) })
	}
	add("summary", func(w io.Writer) error { return Summary(w, []*judge.Run{r, r}) })
	add("claims", func(w io.Writer) error { return Claims(w, claims.Answers([]*judge.Run{r})) })
	add("changes", func(w io.Writer) error { return Changes(w, judge.Changes(runs()["pass"], r)) })
	add("html", func(w io.Writer) error { return HTML(w, tr, r) })
	add("svg", func(w io.Writer) error { return SVG(w, tr, r) })
	add("overlay", func(w io.Writer) error { return Overlay(w, []*judge.Run{r, r}) })
	var live bytes.Buffer
	l := NewLive(&live, false)
	for _, m := range r.Milestones {
		l.Show(judge.Update{Milestone: &m})
	}
	for _, why := range r.Reasons {
		l.Show(judge.Update{Text: why})
	}
	all["live"] = live.String()
	tables := []*compare.Table{compare.New(r.Experiment, compare.Arm{Name: "A", Runs: []*judge.Run{r}}, compare.Arm{Name: r.Profile, Runs: []*judge.Run{r, r}})}
	for _, format := range ComparisonFormats {
		add("compare "+format, func(w io.Writer) error { return Comparison(w, format, tables) })
	}
	return all
}

// obeyed is what CI would do something about.
var obeyed = regexp.MustCompile(`(?m)^[\s\p{Z}]*::|##\[`)

// harmless says what is wrong with a text that is shown.
func harmless(t *testing.T, name, text string, r *judge.Run) {
	t.Helper()
	if !utf8.ValidString(text) {
		t.Errorf("%s: it is no UTF-8", name)
	}
	if i := strings.IndexFunc(text, func(r rune) bool { return r != '\n' && !unicode.IsGraphic(r) }); i >= 0 {
		t.Errorf("%s: %q is in it", name, text[max(0, i-30):min(len(text), i+30)])
	}
	if found := obeyed.FindStringIndex(text); found != nil {
		t.Errorf("%s: a workflow command: %q", name, text[found[0]:min(len(text), found[1]+30)])
	}
	switch name {
	case "text", "wide":
		// Each fact has one line.
		if got, want := strings.Count(text, "\n"), strings.Count(rendered(t, name, texts(reflect.ValueOf(r), func(s string) string { return word(s) + "x" }).Interface().(*judge.Run)), "\n"); got != want {
			t.Errorf("%s: %d lines, want %d", name, got, want)
		}
	case "markdown":
		rows := 0
		for line := range strings.Lines(text) {
			if !strings.HasPrefix(line, "|") {
				continue
			}
			rows++
			if cells := strings.Count(regexp.MustCompile(`\\.`).ReplaceAllString(line, ""), "|"); cells != 9 {
				t.Errorf("%s: %d bars in %q", name, cells, line)
			}
		}
		if want := len(r.Milestones) + 2; rows != want && len(r.Milestones) > 0 {
			t.Errorf("%s: %d rows, want %d", name, rows, want)
		}
		// Without code, escapes, and what keeps a mention apart there is no markup left.
		prose := regexp.MustCompile("(?m)`[^`\n]*`(, [0-9-]+ s)$").ReplaceAllString(strings.ReplaceAll(text, "&#8203;", "\u200b"), "$1")
		prose = regexp.MustCompile(`\\[[:punct:]]`).ReplaceAllString(prose, "")
		if bad := regexp.MustCompile("[<`*_$&~[]|@\\w|://|#\\w|www\\.").FindString(prose); bad != "" {
			t.Errorf("%s: markup: %q in %s", name, bad, text)
		}
	case "bench":
		for line := range strings.Lines(text) {
			key, value, _ := strings.Cut(strings.TrimSpace(line), ":")
			switch {
			case key == "experiment" && strings.TrimSpace(value) != strings.TrimSpace(guard("x " + plain(r.Experiment))[2:]):
				t.Errorf("%s: the experiment is %q", name, value)
			case key == "outcome" && strings.TrimSpace(value) != strings.TrimSpace(guard("x " + plain(string(r.Outcome)))[2:]):
				t.Errorf("%s: the outcome is %q", name, value)
			case strings.HasPrefix(line, "Benchmark") && len(strings.Fields(line)) != 6:
				t.Errorf("%s: %q", name, line)
			}
		}
	case "json", "compare json":
		if !json.Valid([]byte(text)) {
			t.Errorf("%s: it is none", name)
		}
		var back judge.Run
		if err := json.Unmarshal([]byte(text), &back); name == "json" && (err != nil || utf8.ValidString(r.Experiment) && back.Experiment != r.Experiment) {
			t.Errorf("%s: %v, the experiment is %q, was %q", name, err, back.Experiment, r.Experiment)
		}
	case "yaml":
		var back judge.Run
		if strings.HasPrefix(text, "{") && json.Valid([]byte(text)) {
			break
		}
		if err := yaml.Unmarshal([]byte(text), &back); err != nil || utf8.ValidString(r.Experiment) && back.Experiment != r.Experiment {
			t.Errorf("%s: %v, the experiment is %q, was %q", name, err, back.Experiment, r.Experiment)
		}
	case "junit", "svg":
		for dec := xml.NewDecoder(strings.NewReader(text)); ; {
			if _, err := dec.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Errorf("%s: %v", name, err)
				break
			}
		}
	}
}

func rendered(t *testing.T, format string, r *judge.Run) string {
	t.Helper()
	var b strings.Builder
	if err := Print(&b, format, r); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// annotated are the workflow commands of a run, which are to be nothing else.
func annotated(t *testing.T, r *judge.Run) {
	t.Helper()
	var b strings.Builder
	if err := Annotations(&b, r); err != nil {
		t.Fatal(err)
	}
	lines := 0
	for line := range strings.Lines(b.String()) {
		lines++
		if parts := strings.SplitN(line, "::", 3); len(parts) != 3 || parts[0] != "" || !strings.HasPrefix(parts[1], "error title=") || strings.ContainsAny(parts[1], ",:") || strings.ContainsFunc(strings.TrimSuffix(line, "\n"), odd) {
			t.Errorf("annotation %q", line)
		}
	}
	if want := len(r.Reasons); lines != want && !r.AsWanted() {
		t.Errorf("%d annotations of %d reasons", lines, want)
	}
}

// Nothing that a record says is obeyed by what it is shown with.
func TestRecordsOfStrangers(t *testing.T) {
	for _, evil := range evils {
		tr, r := spoiled(func(string) string { return evil })
		for name, text := range renderAll(t, tr, r) {
			harmless(t, name, text, r)
		}
		annotated(t, r)
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		tr, r := spoiled(func(s string) string { return evils[rnd.IntN(len(evils))] + s + evils[rnd.IntN(len(evils))] })
		for name, text := range renderAll(t, tr, r) {
			harmless(t, name, text, r)
		}
		annotated(t, r)
	}
}

func FuzzRecordsOfStrangers(f *testing.F) {
	for i, evil := range evils {
		f.Add(evil, evils[(i+1)%len(evils)])
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		tr, r := spoiled(func(s string) string { return a + s + b })
		for name, text := range renderAll(t, tr, r) {
			harmless(t, name, text, r)
		}
		annotated(t, r)
	})
}
