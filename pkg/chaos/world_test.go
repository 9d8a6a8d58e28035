package chaos

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// A world is a cluster whose state is nothing but files: those of node x below
// nodes/x, those of the API server beside. A script is run by the real bash in a
// folder that is made equal to the world, and what it leaves there is the world
// after it. So a world can be kept, and taken up again, at any moment of a story.
//
// A script that meets the same files once more does the same, and is not run a
// second time: its lab knows what comes out.
type world struct {
	lab   *lab
	mu    sync.Mutex
	files tree
	// before, where it is set, is told of each script and what stands there before it.
	before func(script string, files tree)
}

// A tree is what lies below a folder, by its path.
type tree map[string]file

// A file may be a folder or a link too.
type file struct {
	mode fs.FileMode
	text string // what it holds, or where it leads; rootMark is the folder above all
}

const rootMark = "@ROOT@"

// put adds a file, and the folders above it.
func (tr tree) put(name, text string) { tr.add(name, file{mode: 0o644, text: text}) }

// link adds a link.
func (tr tree) link(name, to string) { tr.add(name, file{mode: fs.ModeSymlink | 0o777, text: to}) }

// folder adds a folder.
func (tr tree) folder(name string) { tr.add(name, file{mode: fs.ModeDir | 0o755}) }

func (tr tree) add(name string, f file) {
	for dir := filepath.Dir(name); dir != "."; dir = filepath.Dir(dir) {
		if _, ok := tr[dir]; !ok {
			tr[dir] = file{mode: fs.ModeDir | 0o755}
		}
	}
	tr[name] = f
}

// names are those that match a pattern, without the folder.
func (tr tree) names(pattern string) []string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(tr)) {
		if ok, _ := filepath.Match(pattern, name); ok {
			names = append(names, filepath.Base(name))
		}
	}
	return names
}

// below are the files in a folder, or all, in order.
func (tr tree) below(dir string) iter.Seq2[string, file] {
	return func(yield func(string, file) bool) {
		for _, name := range slices.Sorted(maps.Keys(tr)) {
			if below(dir, name) && !yield(name, tr[name]) {
				return
			}
		}
	}
}

func below(dir, name string) bool {
	return dir == "" || name == dir || strings.HasPrefix(name, dir+"/")
}

// A lab has folders in which worlds come to life, and remembers each script.
type lab struct {
	t     testing.TB
	dir   string // of the stand-ins
	disks chan *disk
	mu    sync.Mutex
	known map[[sha256.Size]byte]outcome
	asked int // how many scripts were to be run
}

// outcome is what a script does.
type outcome struct {
	out  string
	err  error
	sees string // the folder of its node, or "" where it has looked at the world
	left tree   // of what it sees
}

// A disk is a folder, and what is in it.
type disk struct {
	root  string
	holds tree
}

// newLab makes one with stand-ins for commands: see standIn.
func newLab(t testing.TB, commands map[string]string) *lab {
	needLinux(t)
	l := &lab{t: t, dir: t.TempDir(), disks: make(chan *disk, runtime.GOMAXPROCS(0)), known: map[[sha256.Size]byte]outcome{}}
	for name, body := range commands {
		standIn(t, l.dir, name, body)
	}
	for range cap(l.disks) {
		l.disks <- &disk{root: t.TempDir(), holds: tree{}}
	}
	return l
}

// at takes up a world at a moment of it.
func (l *lab) at(files tree) *world { return &world{lab: l, files: files} }

// A worldNode is one of its nodes.
type worldNode struct {
	*world
	name string
}

// path is that of a file of the node.
func (n worldNode) path(name string) string {
	return filepath.Join("nodes", n.name, name)
}

func (n worldNode) exists(name string) bool { _, ok := n.files[n.path(name)]; return ok }

func (n worldNode) read(name string) string { return n.files[n.path(name)].text }

// silentFor makes the runner's last sign of life so old.
func (n worldNode) silentFor(d time.Duration) {
	n.files = maps.Clone(n.files)
	n.files.put(n.path("flatline/"+runID+"/alive"), signedBefore(d))
}

// Exec runs a command to its end, whatever becomes of ctx: no clock decides what is
// left of it.
func (n worldNode) Exec(ctx context.Context, stdin io.Reader, stdout io.Writer, argv ...string) error {
	var in []byte
	if stdin != nil {
		in, _ = io.ReadAll(stdin)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if n.before != nil {
		n.before(scriptOf(argv), n.files)
	}
	o := n.lab.run(n, string(in), argv)
	after := tree{}
	for name, f := range n.files {
		if !below(o.sees, name) {
			after[name] = f
		}
	}
	maps.Copy(after, o.left)
	n.files = after
	_, _ = io.WriteString(stdout, o.out)
	return o.err
}

// run finds out what a command does, or knows it. It sees its node, and what it does
// follows from that up to where it looks at the world.
func (l *lab) run(n worldNode, stdin string, argv []string) outcome {
	key := func(sees string) [sha256.Size]byte {
		h := sha256.New()
		fmt.Fprintf(h, "%q %q %q %q\n", sees, n.name, stdin, argv)
		for name, f := range n.files.below(sees) {
			fmt.Fprintf(h, "%q %s %q\n", name, f.mode, f.text)
		}
		return [sha256.Size]byte(h.Sum(nil))
	}
	node, all := key(n.path("")), key("")
	l.mu.Lock()
	l.asked++
	o, ok := l.known[node]
	if !ok {
		o, ok = l.known[all]
	}
	l.mu.Unlock()
	if ok {
		return o
	}
	o = l.perform(n, stdin, argv)
	l.mu.Lock()
	defer l.mu.Unlock()
	if o.sees == "" {
		node = all
	}
	l.known[node] = o
	return o
}

// perform runs a command on a disk.
func (l *lab) perform(n worldNode, stdin string, argv []string) outcome {
	d := <-l.disks
	defer func() { l.disks <- d }()
	if err := d.become(n.files); err != nil {
		l.t.Error(err)
	}
	home := filepath.Join(d.root, n.path(""))
	env := append(withStandIns(l.dir, home), "WORLD="+d.root)
	var out bytes.Buffer
	var there []string
	for _, a := range argv {
		there = append(there, here(home, strings.ReplaceAll(a, rootMark, d.root)))
	}
	err := shell(context.Background(), home, env, strings.NewReader(stdin), &out, there)
	if err != nil {
		err = errors.New(strings.ReplaceAll(err.Error(), d.root, rootMark))
	}
	o := outcome{out: strings.ReplaceAll(out.String(), d.root, rootMark), err: err, sees: n.path("")}
	if os.Remove(filepath.Join(d.root, "looked")) == nil {
		o.sees = ""
	}
	if d.holds, err = readTree(d.root); err != nil {
		l.t.Error(err)
	}
	o.left = maps.Collect(d.holds.below(o.sees))
	return o
}

// become makes the folder equal to a tree.
func (d *disk) become(want tree) error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(d.holds)) {
		if f, ok := want[name]; !ok || f != d.holds[name] && (!f.mode.IsDir() || !d.holds[name].mode.IsDir()) {
			errs = append(errs, os.RemoveAll(filepath.Join(d.root, name)))
			maps.DeleteFunc(d.holds, func(other string, _ file) bool { return below(name, other) })
		}
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if f := want[name]; f != d.holds[name] {
			errs = append(errs, f.write(filepath.Join(d.root, name), strings.ReplaceAll(f.text, rootMark, d.root)))
		}
	}
	d.holds = want
	return errors.Join(errs...)
}

// write makes a file that is not there, or gives a folder its mode.
func (f file) write(path, text string) error {
	var err error
	switch {
	case f.mode&fs.ModeSymlink != 0:
		return os.Symlink(text, path)
	case f.mode.IsDir():
		if err = os.Mkdir(path, f.mode.Perm()); errors.Is(err, fs.ErrExist) {
			err = nil
		}
	default:
		err = os.WriteFile(path, []byte(text), f.mode.Perm())
	}
	return errors.Join(err, os.Chmod(path, f.mode))
}

// readTree reads all that lies below a folder.
func readTree(root string) (tree, error) {
	tr := tree{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == root {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		f := file{mode: info.Mode()}
		var text []byte
		switch {
		case f.mode&fs.ModeSymlink != 0:
			f.text, err = os.Readlink(path)
		case f.mode.IsRegular():
			text, err = os.ReadFile(path)
			f.text = string(text)
		}
		f.text = strings.ReplaceAll(f.text, root, rootMark)
		tr[path[len(root)+1:]] = f
		return err
	})
	return tr, err
}
