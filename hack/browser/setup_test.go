package browser

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// script runs hack/browser/setup after some of its functions were replaced; PATH
// has the programs that the script needs and no browser but those given.
func script(t *testing.T, overrides string, env ...string) (string, int) {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"bash", "dirname", "sed", "tr", "uname"} {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(path, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("bash", "-c", `source ./setup; PATH=`+dir+`; eval "$1"; main`, "test", overrides)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir}, env...)
	out, _ := cmd.CombinedOutput() // the exit code says it
	return string(out), cmd.ProcessState.ExitCode()
}

func TestSetup(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		overrides string
		env       []string
		want      string
		code      int
	}{
		"named":      {"", []string{"CHROMIUM=" + self}, self + "\n", 0},
		"named none": {"", []string{"CHROMIUM=/nowhere"}, "error: CHROMIUM names /nowhere, which is no program\n", 3},
		"elsewhere":  {"debian_like() { return 1; }", nil, "error: there is no Chromium to test the report with", 3},
		"no root":    {"debian_like() { :; }; is_root() { return 1; }", nil, "error: there is no Chromium to test the report with", 3},
		"installed": {`debian_like() { :; }; is_root() { :; }; install_packages() { echo "installs ${packages[*]}"; chromium() { :; }; }`, nil,
			"Changes to this machine (hack/unsetup takes them back):\n  - install the Debian package chromium, to test the report with, and what it depends on\ninstalls chromium\nchromium\n", 0},
	} {
		out, code := script(t, test.overrides, test.env...)
		if code != test.code || !strings.HasPrefix(out, test.want) {
			t.Errorf("%s: exit code %d and %q, want %d and %q", name, code, out, test.code, test.want)
		}
	}
}
