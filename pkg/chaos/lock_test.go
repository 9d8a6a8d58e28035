package chaos

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// engineWith puts a docker client on PATH that has one cluster, flatline-aa11bb22, made by
// somebody in their cache folder, an hour ago or just now. What is asked is in calls.
func engineWith(t *testing.T, owner, cache, folder, made string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	line, err := json.Marshal([]string{"flatline-aa11bb22-control-plane", "2026-12-03 " + made + " +0000 UTC", "flatline-aa11bb22", "control-plane", "flatline-aa11bb22", "",
		"run", "v1.37.2", "{}", "node:1", "sha256:1", owner, cache, folder})
	if err != nil {
		t.Fatal(err)
	}
	const script = `
case "$1" in
info) echo '{"ServerVersion":"28","SystemTime":"2026-12-03T12:00:00Z"}';;
ps) [ -e $stub/gone ] || cat $stub/line;;
cp) [ -e $stub/broken ] && { echo "Error response from daemon: i/o timeout" >&2; exit 1; }
  echo "Error response from daemon: Could not find the file /etc/flatline/at-work in container" >&2; exit 1;;
exec) echo held; while read -r _; do :; done;;
rm) touch $stub/gone;;
image) [ "$2" = ls ] || { echo "Error: No such image" >&2; exit 1; };;
esac
`
	for name, content := range map[string]string{"docker": "#!/bin/sh\nstub=" + dir + "\necho \"$*\" >>$stub/calls\n" + script, "line": string(line) + "\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	return dir
}

// inCache makes an empty cache folder the user's.
func inCache(t *testing.T) (cache string) {
	t.Helper()
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("XDG_CACHE_HOME", filepath.Join(home, "cache"))
	cache, err := cacheFolder()
	if err != nil {
		t.Fatal(err)
	}
	return cache
}

func only(t *testing.T) Kept {
	t.Helper()
	list, err := Clusters(t.Context())
	if err != nil || len(list) != 1 {
		t.Fatalf("%+v %v", list, err)
	}
	return list[0]
}

// A cluster whose lock is held is at work, whatever cache folder the one who asks has.
func TestClustersSeeTheLockOfTheirMaker(t *testing.T) {
	const name = "flatline-aa11bb22"
	cache := inCache(t)
	l, err := lockFile(name)
	if err != nil {
		t.Fatal(err)
	}
	dir := engineWith(t, owner(), cache, "", "11:00:00")
	inCache(t) // another one
	if k := only(t); !k.Own || k.Busy != ErrBusy.Error() {
		t.Errorf("%+v", k)
	} else if err := k.Delete(t.Context()); !errors.Is(err, ErrBusy) {
		t.Errorf("deleting it: %v", err)
	}
	if calls, _ := os.ReadFile(filepath.Join(dir, "calls")); strings.Contains(string(calls), "rm ") {
		t.Errorf("it was touched: %s", calls)
	}
	l.Release()
	if k := only(t); k.Busy != "" {
		t.Errorf("%+v", k)
	}
	if err := os.WriteFile(filepath.Join(dir, "broken"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if k := only(t); !strings.Contains(k.Busy, "i/o timeout") {
		t.Errorf("what cannot be looked at counts as idle: %+v", k)
	}
}

// A young cluster without a sign may be being made: only its maker's lock says that it is not.
func TestClustersThatMayBeBeingMade(t *testing.T) {
	cache := inCache(t)
	l, err := lockFile("flatline-aa11bb22")
	if err != nil {
		t.Fatal(err)
	}
	l.Release()
	for what, c := range map[string]struct {
		owner, cache string
		busy, own    bool
	}{
		"ours, and its maker is gone": {owner(), cache, false, true},
		"ours, of another folder":     {owner(), filepath.Join(t.TempDir(), "flatline"), true, true},
		"somebody else's":             {"0@feed", cache, true, false},
		"of before there were labels": {"", "", true, false},
	} {
		engineWith(t, c.owner, c.cache, "", "11:59:00")
		if k := only(t); (k.Busy != "") != c.busy || k.Own != c.own {
			t.Errorf("%s: %+v", what, k)
		}
	}
}

// The kubeconfig goes with the cluster, and nothing else does.
func TestKeptDelete(t *testing.T) {
	cache := inCache(t)
	dir := engineWith(t, owner(), cache, "", "11:00:00")
	path := kubeconfigPath(cache, "flatline-aa11bb22")
	for _, file := range []string{path, kubeconfigPath(cache, "other")} {
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := only(t).Delete(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left, _ := os.ReadDir(filepath.Dir(path)); len(left) != 1 || left[0].Name() != "other" {
		t.Errorf("left is %v", left)
	}
	if _, err := os.Stat(filepath.Join(dir, "gone")); err != nil {
		t.Error("the containers are left")
	}
}

// What a sweep may delete is what says that it was made for it, by this user.
func TestLeftFor(t *testing.T) {
	cache := inCache(t)
	folder := filepath.Join(t.TempDir(), "g[1]", "tune")
	for what, c := range map[string]struct {
		owner, folder string
		want          int
	}{
		"its own": {owner(), folder, 1}, "another folder's": {owner(), folder + "2", 0},
		"somebody else's": {"0@feed", folder, 0}, "a run's": {owner(), "", 0},
	} {
		engineWith(t, c.owner, cache, c.folder, "11:00:00")
		if left, err := LeftFor(t.Context(), folder); err != nil || len(left) != c.want {
			t.Errorf("%s: %+v %v", what, left, err)
		}
	}
}

// Two at once are refused one, and a look does not disturb.
func TestLockFile(t *testing.T) {
	cache := inCache(t)
	if _, err := locked(cache, "x"); err == nil {
		t.Error("a lock that is not there is free")
	}
	l, err := lockFile("x")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lockFile("x"); !errors.Is(err, ErrBusy) {
		t.Errorf("error %v", err)
	}
	if held, err := locked(cache, "x"); !held || err != nil {
		t.Errorf("%t %v", held, err)
	}
	l.Release()
	if held, err := locked(cache, "x"); held || err != nil {
		t.Errorf("%t %v", held, err)
	}
	(*Lock)(nil).Release()
}

func TestClusterName(t *testing.T) {
	for id, want := range map[string]string{"20261129t170735z-7542": "flatline-7542", "20261129t170735z-0a1b2c3d": "flatline-0a1b2c3d", "x": "flatline-x", "": "flatline-"} {
		if got := ClusterName(id); got != want {
			t.Errorf("%q: %s, want %s", id, got, want)
		}
	}
}
