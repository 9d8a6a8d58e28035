// Package safely reads and writes files in folders whose content somebody else may have
// made: nothing there is followed, waited for or taken whole without a bound.
package safely

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Replace writes a file as a whole: a new file in the same folder takes the name when it
// is complete. A link of that name is replaced and not followed, and whatever fails, what
// was there stays. An error wraps that of the system.
func Replace(name string, data []byte) error {
	var random [8]byte
	if _, err := rand.Read(random[:]); err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	fresh := filepath.Join(filepath.Dir(name), ".flatline-"+hex.EncodeToString(random[:]))
	f, err := os.OpenFile(fresh, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644) // which follows no link
	if err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(fresh, name)
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", name, errors.Join(err, os.Remove(fresh)))
	}
	return nil
}

// ErrIrregular says that a name stands for something else than a file: a link, a folder, a
// pipe or a device.
var ErrIrregular = errors.New("it is no regular file")

// Open opens a file for reading, without waiting and without following a link. The error is
// ErrIrregular where there is something else, or that of the system; both with the name.
func Open(name string) (*os.File, error) {
	irregular := &fs.PathError{Op: "open", Path: name, Err: ErrIrregular}
	if info, err := os.Lstat(name); err != nil { // opening alone does something to some devices
		return nil, err
	} else if !info.Mode().IsRegular() {
		return nil, irregular
	}
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() { // it was another one a moment ago
		err = irregular
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Read reads a file of at most so many bytes, as Open does.
func Read(name string, most int64) ([]byte, error) {
	f, err := Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return ReadAll(f, name, most)
}

// ReadAll reads at most so many bytes; an error names what they are of and the bound.
func ReadAll(r io.Reader, name string, most int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, most+1))
	if err == nil && int64(len(data)) > most {
		err = fmt.Errorf("%s: it has more than %d bytes", name, most)
	}
	if err != nil {
		return nil, err
	}
	return data, nil
}
