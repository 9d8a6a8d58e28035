// Command tool does the parts of the Docker set-up that a shell script does
// badly.
//
//	tool missing-caps                                  capabilities this host lacks, one a line
//	tool probe-image PROBE                             tar of an image with that one binary, on stdout
//	tool add-runtime FILE NAME PATH [RUNTIME-ARG...]   merged daemon.json, on stdout
//	tool remove-runtime FILE NAME                      daemon.json without it, on stdout
package main

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"flatline/docker/internal/caps"
)

func main() {
	if err := run(os.Stdout, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(w io.Writer, args []string) error {
	switch {
	case len(args) == 1 && args[0] == "missing-caps":
		missing, err := caps.Missing()
		if err != nil {
			return err
		}
		for _, name := range missing {
			fmt.Fprintln(w, name)
		}
		return nil
	case len(args) == 2 && args[0] == "probe-image":
		return probeImage(w, args[1])
	case len(args) >= 4 && args[0] == "add-runtime":
		file := args[1]
		data, err := os.ReadFile(file)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		merged, err := addRuntime(data, args[2], args[3], args[4:])
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		_, err = w.Write(merged)
		return err
	case len(args) == 3 && args[0] == "remove-runtime":
		file := args[1]
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		rest, err := removeRuntime(data, args[2])
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		_, err = w.Write(rest)
		return err
	}
	return errors.New("usage: tool missing-caps | probe-image PROBE | add-runtime FILE NAME PATH [ARG...] | remove-runtime FILE NAME")
}

// probeImage writes what docker import reads: a root with /probe in it.
func probeImage(w io.Writer, probe string) error {
	data, err := os.ReadFile(probe)
	if err != nil {
		return err
	}
	tw := tar.NewWriter(w)
	if err := tw.WriteHeader(&tar.Header{Name: "probe", Mode: 0o755, Size: int64(len(data))}); err != nil {
		return err
	}
	if _, err := tw.Write(data); err != nil {
		return err
	}
	return tw.Close()
}
