package safely

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// Whatever has the name is replaced; what it leads to stays, and nothing is left over.
func TestReplace(t *testing.T) {
	for what, before := range map[string]func(dir string) error{
		"nothing":         func(string) error { return nil },
		"a file":          func(dir string) error { return os.WriteFile(filepath.Join(dir, "report.html"), []byte("old"), 0o600) },
		"a link":          func(dir string) error { return os.Symlink("../outside", filepath.Join(dir, "report.html")) },
		"a link to a dir": func(dir string) error { return os.Symlink("..", filepath.Join(dir, "report.html")) },
		"a broken link":   func(dir string) error { return os.Symlink("../new", filepath.Join(dir, "report.html")) },
		"a circle":        func(dir string) error { return os.Symlink("report.html", filepath.Join(dir, "report.html")) },
		"a device":        func(dir string) error { return os.Symlink("/dev/full", filepath.Join(dir, "report.html")) },
		"a pipe":          func(dir string) error { return syscall.Mkfifo(filepath.Join(dir, "report.html"), 0o600) },
		"a second name": func(dir string) error {
			return os.Link(filepath.Join(dir, "../outside"), filepath.Join(dir, "report.html"))
		},
	} {
		t.Run(what, func(t *testing.T) {
			root := t.TempDir()
			dir := filepath.Join(root, "run")
			write(t, filepath.Join(root, "outside"), "mine")
			if err := errors.Join(os.Mkdir(dir, 0o755), before(dir)); err != nil {
				t.Fatal(err)
			}
			name := filepath.Join(dir, "report.html")
			if err := Replace(name, []byte("new")); err != nil {
				t.Fatal(err)
			}
			info, err := os.Lstat(name)
			if err != nil || !info.Mode().IsRegular() || read(t, name) != "new" {
				t.Errorf("it is %v, %v", info, err)
			}
			if got := read(t, filepath.Join(root, "outside")); got != "mine" {
				t.Errorf("outside there is %q", got)
			}
			for folder, want := range map[string]int{root: 2, dir: 1} {
				if entries, err := os.ReadDir(folder); err != nil || len(entries) != want {
					t.Errorf("%s holds %v, %v", folder, entries, err)
				}
			}
		})
	}
}

// What cannot be replaced stays as it is, with nothing beside it.
func TestReplaceFails(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "report.html")
	if err := os.MkdirAll(filepath.Join(name, "full"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := Replace(name, []byte("new")); err == nil || !strings.Contains(err.Error(), "writing "+name) {
		t.Errorf("error %v does not name the file", err)
	}
	if err := Replace(filepath.Join(dir, "nowhere", "x"), nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error %v", err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("there is %v, %v", entries, err)
	}
}

// What is no file is refused at once: a pipe would be waited for, a device has no end.
func TestRead(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	write(t, at("file"), "12345678")
	for _, err := range []error{
		os.Symlink("file", at("link")), os.Symlink("/dev/zero", at("device")), os.Symlink("circle", at("circle")),
		syscall.Mkfifo(at("pipe"), 0o600), os.Mkdir(at("folder"), 0o755),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"link", "device", "circle", "pipe", "folder"} {
		if _, err := Read(at(name), 8); !errors.Is(err, ErrIrregular) || !strings.Contains(err.Error(), at(name)) {
			t.Errorf("%s: error %v", name, err)
		}
	}
	if _, err := Read(at("absent"), 8); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error %v", err)
	}
	if data, err := Read(at("file"), 8); err != nil || string(data) != "12345678" {
		t.Errorf("%q, %v", data, err)
	}
	if _, err := Read(at("file"), 7); err == nil || !strings.Contains(err.Error(), at("file")+": it has more than 7 bytes") {
		t.Errorf("error %v", err)
	}
}
