package cli

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// clone makes a folder look like a clone of this module, with programs that tell on being run.
func clone(t *testing.T, dir string) {
	t.Helper()
	tell := []byte("#!/bin/sh\n: >\"" + dir + "/executed-$1\"\n")
	err := errors.Join(os.MkdirAll(filepath.Join(dir, "hack/nodeimage"), 0o755), os.Mkdir(filepath.Join(dir, "bin"), 0o755),
		os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module "+module+"\n"), 0o644),
		os.WriteFile(filepath.Join(dir, "hack/nodeimage/build"), tell, 0o755), os.WriteFile(filepath.Join(dir, "bin/docker"), tell, 0o755))
	if err != nil {
		t.Fatal(err)
	}
}

// executed are the marks of the programs that were run.
func executed(t *testing.T, dir string) string {
	t.Helper()
	marks, err := filepath.Glob(filepath.Join(dir, "executed-*"))
	if err != nil {
		t.Fatal(err)
	}
	for i, m := range marks {
		marks[i] = filepath.Base(m)
	}
	return strings.Join(marks, " ")
}

// What lies in the working folder is never run, and some verbs run nothing at all.
func TestNothingOfTheWorkingFolderIsRun(t *testing.T) {
	evidence, err := filepath.Abs("../../docs/evidence/kubelet-stopped-fast")
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		args   string
		docker bool // may be run
	}{
		{"node-image", true},
		{"run control", true},
		{"tune control --set kubelet.nodeLeaseDurationSeconds=8,12", true},
		{"tune control --dry-run --set kubelet.nodeLeaseDurationSeconds=8,12", false},
		{"plan control", false},
		{"list", false},
		{"judge " + evidence, false},
		{"claims " + evidence, false},
		{"report -f page.html " + evidence, false},
		{"compare " + evidence + " " + evidence, false},
	} {
		t.Run(test.args, func(t *testing.T) {
			dir := t.TempDir()
			clone(t, dir)
			c := flatline(t, "flatline", strings.Fields(test.args)...)
			c.Dir = dir
			c.Env = append(c.Env, "PATH="+dir+"/bin", "NODE_IMAGE=", "ARTIFACTS=", "HOME="+dir, "XDG_CACHE_HOME=", "DOCKER_HOST=unix://"+dir+"/none")
			out, err := c.CombinedOutput()
			got := executed(t, dir)
			if strings.Contains(got, "executed---tag") || strings.HasSuffix(got, "executed-") || !test.docker && got != "" {
				t.Errorf("it ran %s", got)
			}
			if !test.docker && err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// The recipe of the clone in which the binary lies is found from anywhere, through links too.
func TestRecipe(t *testing.T) {
	if got := recipe(); got != "" {
		t.Errorf("this test has the recipe %s", got)
	}
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		at, mod string
		found   bool
	}{
		{"bin/flatline", "module " + module + "\n\ngo 1.26\n", true},
		{"flatline", "module " + module + "\n", true},
		{"bin/flatline", "module example.org/other\n", false},
		{"bin/deep/flatline", "module " + module + "\n", false},
		{"bin/flatline", "", false},
	} {
		dir, elsewhere := t.TempDir(), t.TempDir()
		clone(t, dir)
		at := filepath.Join(dir, test.at)
		link := filepath.Join(elsewhere, "flatline")
		err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), copyFile(binary, at), os.Symlink(at, link),
			os.WriteFile(filepath.Join(dir, "go.mod"), []byte(test.mod), 0o644))
		if err != nil {
			t.Fatal(err)
		}
		c := flatline(t, "flatline", "node-image")
		c.Path, c.Dir = link, elsewhere
		c.Env = append(c.Env, "PATH="+elsewhere, "NODE_IMAGE=")
		_ = c.Run() // there is no engine
		if found := executed(t, dir) == "executed---tag"; found != test.found {
			t.Errorf("%s with %q: found is %v, it ran %q", test.at, test.mod, found, executed(t, dir))
		}
	}
}

// copyFile makes a program of another file.
func copyFile(from, to string) error {
	if os.Link(from, to) == nil {
		return nil
	}
	r, err := os.Open(from)
	if err != nil {
		return err
	}
	defer r.Close()
	w, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(w, r)
	return errors.Join(err, w.Close())
}
