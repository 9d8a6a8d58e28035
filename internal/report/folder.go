package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"sigs.k8s.io/yaml"

	"github.com/flatline-chaos/flatline/pkg/judge"
	"github.com/flatline-chaos/flatline/pkg/observe"
)

// Folder judges the timeline that lies in a run's folder and writes every rendering
// beside it: report.html, report.md, junit.xml and bench.txt. What is there is
// replaced.
func Folder(dir string) error {
	t, err := observe.ReadTimelineFile(filepath.Join(dir, "timeline.jsonl"))
	if err != nil {
		return err
	}
	r, err := judge.Judge(t)
	if err != nil {
		return err
	}
	tr, err := judge.NewTrace(t)
	if err != nil {
		return err
	}
	page := func(out io.Writer, r *judge.Run) error { return HTML(out, tr, r) }
	for name, write := range map[string]func(io.Writer, *judge.Run) error{"report.html": page, "report.md": Markdown, "junit.xml": JUnit, "bench.txt": Bench} {
		var b bytes.Buffer
		if err := write(&b, r); err != nil {
			return fmt.Errorf("writing %s: %w", name, err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), b.Bytes(), 0o644); err != nil {
			return fmt.Errorf("writing %s: %w", name, err)
		}
	}
	return nil
}

// Formats are the values that Print takes.
var Formats = []string{"text", "wide", "json", "yaml", "name", "markdown", "junit", "bench"}

// Print writes a run in one of the Formats; json and yaml are run.json as it is,
// the last three the files that Folder writes.
func Print(out io.Writer, format string, r *judge.Run) error {
	switch format {
	case "text":
		return Text(out, r)
	case "wide":
		return Wide(out, r)
	case "name":
		_, err := fmt.Fprintln(out, r.RunID)
		return err
	case "markdown":
		return Markdown(out, r)
	case "junit":
		return JUnit(out, r)
	case "bench":
		return Bench(out, r)
	}
	if format == "json" {
		return writeJSON(out, r)
	}
	data, err := yaml.Marshal(r) // by way of JSON
	if err != nil {
		return fmt.Errorf("writing %s: %w", format, err)
	}
	_, err = out.Write(data)
	return err
}

func writeJSON(out io.Writer, data any) error {
	text, err := json.MarshalIndent(data, "", "  ")
	if err != nil {
		return fmt.Errorf("writing JSON: %w", err)
	}
	_, err = out.Write(append(text, '\n'))
	return err
}
