package cli

import (
	"fmt"
	"os"

	"github.com/flatline-chaos/flatline/internal/report"
	"github.com/flatline-chaos/flatline/internal/safely"
)

// writeNamed writes a report to where the user wants it. To a pipe or a device, such as
// /dev/stdout, it goes as it is.
func (a *app) writeNamed(name string, page []byte) error {
	if info, err := os.Stat(name); err != nil || info.Mode().IsRegular() || info.IsDir() {
		return a.writeFile(name, page)
	}
	return os.WriteFile(name, page, 0o644)
}

// writeFile writes a report and says where.
func (a *app) writeFile(name string, page []byte) error {
	if err := safely.Replace(name, page); err != nil {
		return err
	}
	_, err := fmt.Fprintln(a.out, report.Lines(name))
	return err
}
