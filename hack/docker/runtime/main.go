// Command runtime is an OCI runtime for hosts whose root lacks some
// capabilities. Engines ask for every capability the kernel knows when a
// container is privileged, and runc refuses what it cannot give. This runtime
// takes the capabilities the host lacks out of the request and becomes runc.
//
//	flatline-runc [--real-runc=PATH] ARGUMENTS OF RUNC...
package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"flatline/docker/internal/caps"
)

func main() {
	args := os.Args[1:]
	real := ""
	if len(args) > 0 {
		if path, ok := strings.CutPrefix(args[0], "--real-runc="); ok {
			real, args = path, args[1:]
		}
	}
	if real == "" {
		path, err := nextInPath("runc")
		if err != nil {
			fmt.Fprintln(os.Stderr, "flatline-runc:", err)
			os.Exit(1)
		}
		real = path
	}
	// runc itself reports a broken file best, in the log its caller reads; so a
	// file that cannot be filtered is left to it.
	if err := filterRequest(args); err != nil {
		fmt.Fprintln(os.Stderr, "flatline-runc: capabilities not filtered:", err)
	}
	err := syscall.Exec(real, append([]string{"runc"}, args...), os.Environ())
	fmt.Fprintf(os.Stderr, "flatline-runc: exec %s: %v\n", real, err)
	os.Exit(1)
}

func filterRequest(args []string) error {
	file, filter := request(args)
	if file == "" {
		return nil
	}
	missing, err := caps.Missing()
	if err != nil || len(missing) == 0 {
		return err
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	filtered, err := filter(data, missing)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if string(filtered) == string(data) {
		return nil
	}
	return os.WriteFile(file, filtered, 0o600)
}

// globalFlags are the flags of runc before its command that take a value.
var globalFlags = []string{"root", "log", "log-format", "criu", "rootless"}

// request tells which file of a runc command line holds capabilities, and how
// to filter it; the file is empty for commands that start no process.
func request(args []string) (file string, filter func(data []byte, missing []string) ([]byte, error)) {
	command := ""
	for i := 0; i < len(args); i++ {
		name, _, hasValue := flag(args[i])
		if name == "" {
			command, args = args[i], args[i+1:]
			break
		}
		if !hasValue && slices.Contains(globalFlags, name) {
			i++
		}
	}
	switch command {
	case "create", "run", "restore":
		bundle := value(args, "bundle", "b")
		if bundle == "" {
			bundle = "."
		}
		return filepath.Join(bundle, "config.json"), filterSpec
	case "exec":
		return value(args, "process", "p"), filterProcess
	}
	return "", nil
}

// flag splits an argument; name is empty for one that is no flag.
func flag(arg string) (name, value string, hasValue bool) {
	name, ok := strings.CutPrefix(arg, "-")
	if !ok {
		return "", "", false
	}
	name, value, hasValue = strings.Cut(strings.TrimPrefix(name, "-"), "=")
	return name, value, hasValue
}

// value finds a flag of a runc command by its long or short name.
func value(args []string, names ...string) string {
	for i, arg := range args {
		if arg == "--" {
			break
		}
		name, v, hasValue := flag(arg)
		if !slices.Contains(names, name) {
			continue
		}
		if hasValue {
			return v
		}
		if i+1 < len(args) {
			return args[i+1]
		}
	}
	return ""
}

// usualDirs are tried after PATH, which not every service manager passes on.
var usualDirs = []string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"}

// nextInPath looks name up in PATH, past this very program.
func nextInPath(name string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	own, err := os.Stat(self)
	if err != nil {
		return "", err
	}
	dirs := append(filepath.SplitList(os.Getenv("PATH")), usualDirs...)
	for _, dir := range dirs {
		path, err := exec.LookPath(filepath.Join(dir, name))
		if err != nil {
			continue
		}
		if info, err := os.Stat(path); err == nil && !os.SameFile(own, info) {
			return path, nil
		}
	}
	return "", fmt.Errorf("no %s in %s", name, strings.Join(dirs, ":"))
}
