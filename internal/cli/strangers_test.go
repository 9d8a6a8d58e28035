package cli

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unicode"

	"github.com/flatline-chaos/flatline/internal/report"
	"github.com/flatline-chaos/flatline/pkg/timeline"
)

// mostMemory is what reading a stranger's records may take, in MB.
const mostMemory = 500

// strangers reads records by all verbs that read, in all formats, and says what is wrong with what
// is shown. It is a process of its own, whose memory can be asked for.
func strangers(folders []string) int {
	for _, dir := range folders {
		for _, args := range readings(dir) {
			var out, errs bytes.Buffer
			code := Main(args, &out, &errs)
			for _, text := range []string{out.String(), errs.String()} {
				if wrong := shownWrong(text); wrong != "" {
					fmt.Printf("%q: it shows %s\n", args, wrong)
				}
			}
			if code != 0 && errs.Len() == 0 {
				fmt.Printf("%q: exit code %d, and no word of it\n", args, code)
			}
		}
	}
	fmt.Printf("memory %d\n", memory())
	return 0
}

// memory is the most that this process has taken, in MB.
func memory() int64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return -1
	}
	return maxMemory(&usage)
}

func maxMemory(usage *syscall.Rusage) int64 {
	if runtime.GOOS == "darwin" { // where it is in bytes
		return int64(usage.Maxrss) >> 20
	}
	return int64(usage.Maxrss) >> 10
}

// readings are all ways to read a folder of records.
func readings(dir string) [][]string {
	var all [][]string
	for _, format := range report.Formats {
		all = append(all, []string{"judge", dir, "-o", format})
	}
	for _, format := range report.ComparisonFormats {
		all = append(all, []string{"compare", dir, dir, "-o", format})
	}
	all = append(all, []string{"compare", "--knobs", dir}, []string{"claims", dir}, []string{"report", dir, "-f", "-"},
		[]string{"report", dir}, []string{"report", dir, "-o", "svg"})
	if info, err := os.Stat(filepath.Join(dir, "timeline.jsonl")); err != nil ||
		info.Mode()&os.ModeNamedPipe == 0 { // one that is named is waited for
		all = append(all, []string{"judge", filepath.Join(dir, "timeline.jsonl")})
	}
	return all
}

var obeyed = regexp.MustCompile(`(?m)^[\s\p{Z}]*::|##\[`)

func shownWrong(text string) string {
	at := strings.IndexFunc(text, func(r rune) bool { return r != '\n' && !unicode.IsGraphic(r) })
	if found := obeyed.FindStringIndex(text); found != nil {
		at = found[0]
	}
	if at < 0 {
		return ""
	}
	return strconv.Quote(text[max(0, at-40):min(len(text), at+40)])
}

// A stranger fills a folder with what nobody expects there. outside is a file that is to stay.
type stranger func(s *scene, dir string) error

// A scene is what strangers take their records from.
type scene struct {
	rnd     *rand.Rand
	outside string
	header  map[string]any
	events  []map[string]any
}

var evils = []string{"::error::x", "\n::set-output name=a::b\n", "##[error]x", "\x1b]0;x\x07\x1b[2J", "\u202e\u200b\u009b",
	"a\r\n::b", "\x00", "|`[x](y)<b>@me", strings.Repeat("long ", 2000), "", "../../etc", "-1", "NaN", "+Inf", "2562047h", "9e999", "0"}

func (s *scene) evil() string { return evils[s.rnd.IntN(len(evils))] }

// spoil changes every so many-th text and number below a value.
func (s *scene) spoil(v any, every int) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for k, e := range v {
			if s.rnd.IntN(8*every) == 0 {
				k += s.evil()
			}
			out[k] = s.spoil(e, every)
		}
		return out
	case []any:
		var out []any
		for _, e := range v {
			out = append(out, s.spoil(e, every))
		}
		return out
	case string:
		switch s.rnd.IntN(2 * every) {
		case 0:
			return s.evil()
		case 1:
			return v + s.evil()
		}
	case float64:
		if s.rnd.IntN(every) == 0 {
			return []any{-v, 1e300, 3e7, -3e7, v * 1000, 0, "1s"}[s.rnd.IntN(7)]
		}
	}
	return v
}

// record writes a header and events as a timeline.
func (s *scene) record(name string, header any, events []map[string]any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	err := enc.Encode(header)
	for _, e := range events {
		err = errors.Join(err, enc.Encode(e))
	}
	return errors.Join(err, os.WriteFile(name, b.Bytes(), 0o644))
}

func (s *scene) good(dir string) error {
	return s.record(filepath.Join(dir, "timeline.jsonl"), s.header, s.events)
}

// packed writes a text many times over into a .gz.
func packed(name, head, text string, times int) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	z, err := gzip.NewWriterLevel(f, gzip.BestSpeed)
	if err != nil {
		return err
	}
	_, err = io.WriteString(z, head)
	block := strings.Repeat(text, 1+1<<16/len(text))
	for done := 0; done < times && err == nil; done += 1 + 1<<16/len(text) {
		_, err = io.WriteString(z, block)
	}
	return errors.Join(err, z.Close(), f.Close())
}

// beside is a good record with something beside it.
func beside(name string, put func(s *scene, name string) error) stranger {
	return func(s *scene, dir string) error { return errors.Join(s.good(dir), put(s, filepath.Join(dir, name))) }
}

// instead is something in the place of the record.
func instead(put func(s *scene, name string) error) stranger {
	return func(s *scene, dir string) error { return put(s, filepath.Join(dir, "timeline.jsonl")) }
}

func linkTo(where string) func(*scene, string) error {
	return func(s *scene, name string) error {
		return os.Symlink(strings.ReplaceAll(where, "OUTSIDE", s.outside), name)
	}
}

func pipe(_ *scene, name string) error { return syscall.Mkfifo(name, 0o600) }

func folder(_ *scene, name string) error { return os.Mkdir(name, 0o755) }

func text(data string) func(*scene, string) error {
	return func(_ *scene, name string) error { return os.WriteFile(name, []byte(data), 0o644) }
}

const plainHeader = `{"schema":"flatline.dev/timeline/v1","runID":"r","start":"2026-01-02T03:04:05Z","experiment":{},"config":{}}` + "\n"

var allStrangers = []stranger{
	instead(linkTo("OUTSIDE")), instead(linkTo("/dev/zero")), instead(linkTo("timeline.jsonl")), instead(linkTo(".")),
	instead(pipe), instead(folder), instead(text("")), instead(text("\n")), instead(text("\x00\xff\x1b[2J\n::error::x\n")),
	instead(text(plainHeader)), instead(text(plainHeader[:50])), instead(text(plainHeader + "::error::x\n")),
	instead(text(strings.Repeat("[", 1<<19) + "\n")), instead(text(strings.Repeat("x", 3<<20))),
	instead(text(plainHeader + `{"at":1,"source":"run","type":"` + strings.Repeat("x", 2<<20) + `"}` + "\n")),
	instead(text(strings.Replace(plainHeader, `"r"`, `"../../::error::\u001b[2J"`, 1))),
	instead(text(strings.Replace(plainHeader, "timeline/v1", `\n::error::\u001b`, 1))),
	instead(text(strings.Replace(plainHeader, `"experiment":{}`, `"experiment":{"metadata":{"name":"\n::error::x"}}`, 1))),
	instead(text(strings.Replace(plainHeader, `"config":{}`, `"config":{"nodes":[`+strings.Repeat("{},", 1<<17)+`{}]}`, 1))),
	instead(text(strings.Replace(plainHeader, `"config":{}`, `"config":{"target":[`+strings.Repeat(`"",`, 1<<17)+`""]}`, 1))),
	func(_ *scene, dir string) error { return packed(filepath.Join(dir, "bomb.jsonl.gz"), "", " ", 1<<28) },
	func(_ *scene, dir string) error {
		return packed(filepath.Join(dir, "bomb.jsonl.gz"), plainHeader, "\n", 1<<28)
	},
	func(_ *scene, dir string) error {
		return packed(filepath.Join(dir, "bomb.jsonl.gz"), plainHeader,
			strings.Repeat(" ", 1<<19)+`{"at":1,"source":"run","type":"x"}`+"\n", 1<<9)
	},
	func(_ *scene, dir string) error {
		return os.WriteFile(filepath.Join(dir, "x.jsonl.gz"), []byte("no gzip"), 0o644)
	},
	beside("run.json", linkTo("OUTSIDE")), beside("run.json", linkTo("/dev/zero")), beside("run.json", pipe),
	beside("run.json", folder), beside("run.json", linkTo("run.json")), beside("run.json", text("")),
	beside("run.json", text("null")),
	beside("run.json", text(`{"outcome":"\n::error::\u001b[2J","milestones":[{"name":"\n##[error]"}]}`)),
	beside("run.json", text(strings.Repeat("[", 1<<20))), beside("run.json", text(`{"kind":"`+strings.Repeat("x", 17<<20)+`"}`)),
	beside("report.html", linkTo("OUTSIDE")), beside("report.html", linkTo("/dev/full")), beside("report.html", pipe),
	beside("report.html", folder), beside("report.svg", linkTo("OUTSIDE")), beside(".run.json", linkTo("OUTSIDE")),
	beside("\n::error::\x1b[2J.jsonl.gz", text("x")), beside("more", linkTo("..")), beside("other.jsonl.gz", pipe),
	func(s *scene, dir string) error {
		dir = filepath.Join(dir, "\x1b[2J\n::error::x")
		return errors.Join(os.Mkdir(dir, 0o755), s.good(dir), os.Symlink(s.outside, filepath.Join(dir, "report.html")))
	},
}

// spoiled is a record in which something is otherwise everywhere.
func spoiled(s *scene, dir string) error {
	every := 1 + s.rnd.IntN(40)
	header := s.spoil(s.header, 4*every).(map[string]any)
	if s.rnd.IntN(4) > 0 { // else it is refused at once
		header["schema"], header["runID"], header["start"] = s.header["schema"], s.header["runID"], s.header["start"]
	}
	if s.rnd.IntN(2) == 0 {
		header["config"] = s.header["config"]
	}
	var events []map[string]any
	for _, e := range s.events {
		spoiled := s.spoil(e, every).(map[string]any)
		for _, key := range []string{"at", "source", "type", "stamp"} { // else the line is refused
			if was, ok := e[key]; ok && (s.rnd.IntN(20) > 0 || key == "at") {
				spoiled[key] = was
			}
		}
		if at, ok := e["at"].(float64); ok && s.rnd.IntN(every) == 0 {
			spoiled["at"] = []float64{-at, 3e7, -3e7, at / 1e6, at + 1e6}[s.rnd.IntN(5)]
		}
		if _, ok := e["stamp"]; ok {
			spoiled["stamp"] = e["stamp"]
			if s.rnd.IntN(every) == 0 {
				spoiled["stamp"] = []string{"0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "2026-01-02T03:04:05+14:00"}[s.rnd.IntN(3)]
			}
		}
		events = append(events, spoiled)
	}
	s.rnd.Shuffle(len(events)/(1+s.rnd.IntN(4)), func(i, j int) { events[i], events[j] = events[j], events[i] })
	return s.record(filepath.Join(dir, "timeline.jsonl"), header, events[:s.rnd.IntN(len(events)+1)])
}

// newScene takes a small record of a real run.
func newScene(t *testing.T, outside string) *scene {
	t.Helper()
	files, err := filepath.Glob("../../docs/evidence/kubelet-stopped-fast/*.gz")
	if err != nil || len(files) == 0 {
		t.Fatal(err)
	}
	s := &scene{rnd: rand.New(rand.NewPCG(13, 8)), outside: outside}
	for i, line := range strings.Split(strings.TrimSpace(string(unpack(t, files[0]))), "\n") {
		var v map[string]any
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			s.header = v
		} else {
			s.events = append(s.events, v)
		}
	}
	return s
}

// A hundred folders of strangers are read by all verbs that read: nothing panics, hangs, is obeyed or
// written outside of them, or takes much memory.
func TestFoldersOfStrangers(t *testing.T) {
	root := t.TempDir()
	outside := filepath.Join(root, "outside")
	if err := os.WriteFile(outside, []byte("mine"), 0o644); err != nil {
		t.Fatal(err)
	}
	s := newScene(t, outside)
	var folders []string
	for i := range 100 {
		if testing.Short() && i%5 != 0 {
			continue
		}
		dir := filepath.Join(root, "work", fmt.Sprint(i))
		put := spoiled
		if i < len(allStrangers) {
			put = allStrangers[i]
		}
		if err := errors.Join(os.MkdirAll(dir, 0o755), put(s, dir)); err != nil {
			t.Fatal(err)
		}
		folders = append(folders, dir)
	}
	t.Run("read", func(t *testing.T) {
		half := len(folders) / 2
		for _, some := range [][]string{folders[:half], folders[half:]} {
			t.Run("", func(t *testing.T) {
				t.Parallel()
				readStrangers(t, some...)
			})
		}
	})
	if data, err := os.ReadFile(outside); err != nil || string(data) != "mine" {
		t.Errorf("outside there is %.80q, %v", data, err)
	}
	if entries, err := os.ReadDir(root); err != nil || len(entries) != 2 {
		t.Errorf("outside there is %v, %v", entries, err)
	}
}

// readStrangers has folders read by a process of its own.
func readStrangers(t *testing.T, folders ...string) {
	t.Helper()
	c := flatline(t, "strangers", folders...)
	c.Dir = t.TempDir()
	c.Env = append(c.Env, "ARTIFACTS="+c.Dir)
	out, err := c.CombinedOutput()
	told, said, ok := strings.Cut(string(out), "memory ")
	mb, merr := strconv.Atoi(strings.TrimSpace(said))
	if err != nil || !ok || told != "" || merr != nil {
		t.Fatalf("%v: %.4000s", err, out)
	}
	t.Logf("%d folders, %d MB", len(folders), mb)
	if mb > mostMemory {
		t.Errorf("it took %d MB", mb)
	}
}

// The largest timelines that are read at all, several of them.
func TestLargestTimelines(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes seconds, and nothing in it runs at the same time")
	}
	s := newScene(t, "")
	node := s.header["config"].(map[string]any)["target"].([]any)[0].(string)
	for name, event := range map[string]string{
		"details": `{"at":7,"source":"audit","type":"update","object":"leases x","detail":{` +
			strings.Repeat(`"N":"",`, timeline.MaxDetails/timeline.MaxEvents-1) + `"N":""}}`,
		"nodes": `{"at":N,"source":"watch","type":"modified","object":"nodes NODE","detail":{"taints":"N:NoSchedule,a:N"}}`,
		"looks": `{"at":7,"source":"run","type":"Controller","object":"cN","detail":{"id":"N"}}`,
		"gaps":  `{"at":7,"source":"recorder","type":"Gap","object":"N","detail":{"why":"N"}}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for run := range 2 {
				header := maps.Clone(s.header)
				header["runID"] = fmt.Sprint("r", run)
				line1, err := json.Marshal(header)
				if err != nil {
					t.Fatal(err)
				}
				var b bytes.Buffer
				z, _ := gzip.NewWriterLevel(&b, gzip.BestSpeed)
				fmt.Fprintf(z, "%s\n", line1)
				parts := strings.Split(strings.ReplaceAll(event, "NODE", node), "N")
				for i := range timeline.MaxEvents {
					for k, part := range parts {
						if k > 0 {
							fmt.Fprint(z, i+k)
						}
						io.WriteString(z, part)
					}
					io.WriteString(z, "\n")
				}
				if err := errors.Join(z.Close(), os.WriteFile(filepath.Join(dir, fmt.Sprint(run, ".jsonl.gz")), b.Bytes(), 0o644)); err != nil {
					t.Fatal(err)
				}
			}
			for _, args := range [][]string{{"judge", dir}, {"report", "-f", "-", filepath.Join(dir, "0.jsonl.gz")}} {
				c := flatline(t, "flatline", args...)
				out, err := c.CombinedOutput()
				if err != nil {
					t.Fatalf("%s: %v: %.2000s", args[0], err, out)
				}
				mb := maxMemory(c.ProcessState.SysUsage().(*syscall.Rusage))
				t.Logf("%s: %d MB, %s", args[0], mb, c.ProcessState.UserTime())
				if mb > mostMemory {
					t.Errorf("%s: it took %d MB", args[0], mb)
				}
			}
		})
	}
}
