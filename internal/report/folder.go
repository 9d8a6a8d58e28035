package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"

	"sigs.k8s.io/yaml"

	"github.com/flatline-chaos/flatline/internal/safely"
	"github.com/flatline-chaos/flatline/pkg/judge"
)

// Folder writes every rendering of a run into its folder: report.html, report.md, junit.xml
// and bench.txt. What is there is replaced.
func Folder(dir string, tr *judge.Trace, r *judge.Run) error {
	page := func(out io.Writer, r *judge.Run) error { return HTML(out, tr, r) }
	renderings := map[string]func(io.Writer, *judge.Run) error{
		"report.html": page, "report.md": Markdown, "junit.xml": JUnit, "bench.txt": Bench,
	}
	for name, write := range renderings {
		var b bytes.Buffer
		if err := write(&b, r); err != nil {
			return fmt.Errorf("writing %s: %w", name, err)
		}
		if err := safely.Replace(filepath.Join(dir, name), b.Bytes()); err != nil {
			return err
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
		_, err := fmt.Fprintln(out, Lines(plain(r.RunID)))
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
	text, err := yaml.Marshal(r) // by way of JSON
	if err != nil || string(text) != Lines(string(text)) {
		return writeJSON(out, r) // which is YAML too, and has an escape for everything
	}
	_, err = out.Write(text)
	return err
}

func writeJSON(out io.Writer, data any) error {
	text, err := json.MarshalIndent(data, "", "  ")
	if err != nil {
		return fmt.Errorf("writing JSON: %w", err)
	}
	_, err = io.WriteString(out, inJSON(string(text))+"\n")
	return err
}
