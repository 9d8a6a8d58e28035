// Archive writes a single-image docker archive, the format that "docker load",
// "ctr images import" and "kind load image-archive" read, without any container
// engine.
//
//	archive -o etcd.tar -tag registry.k8s.io/etcd:3.7.0-0 -add bin/etcd=/usr/local/bin/etcd
//
// Every -layer, in the order given, becomes one layer; all files of -add become
// the last one. A layer archive used for several images has the same digest in
// each of them, so that an image store keeps it once.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
)

func main() {
	if err := run(os.Args[1:], os.Stdout, os.Stderr); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			os.Exit(2)
		}
		fmt.Fprintln(os.Stderr, "archive:", err)
		os.Exit(1)
	}
}

// run parses args and writes the archive to the file they name, or to stdout.
func run(args []string, stdout, stderr io.Writer) error {
	var (
		spec   spec
		out    string
		labels list
		adds   list
	)
	flags := flag.NewFlagSet("archive", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&out, "o", "-", "archive to write; - is standard output")
	flags.StringVar(&spec.tag, "tag", "", "name and tag of the image (required)")
	flags.Var((*list)(&spec.layers), "layer", "uncompressed tar that becomes a layer (repeatable)")
	flags.Var(&adds, "add", "HOST=IMAGE: a file to add; its execute bits decide between mode 0755 and 0644 (repeatable)")
	flags.Var((*list)(&spec.entrypoint), "entrypoint", "one argument of the entrypoint (repeatable)")
	flags.Var((*list)(&spec.env), "env", "NAME=VALUE of the environment (repeatable)")
	flags.Var(&labels, "label", "NAME=VALUE of a label (repeatable)")
	flags.StringVar(&spec.stopSignal, "stop-signal", "", "signal that asks the container to stop")
	flags.StringVar((*string)(&spec.compress), "compress", "gzip",
		"compression of the layers: gzip; zstd, smaller and faster, which containerd and Docker since 23 read; or none")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if spec.tag == "" {
		return errors.New("-tag is required")
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	for _, add := range adds {
		host, image, err := pair("-add", add)
		if err != nil {
			return err
		}
		spec.files = append(spec.files, fileToAdd{host: host, image: image})
	}
	for _, label := range labels {
		name, value, err := pair("-label", label)
		if err != nil {
			return err
		}
		if spec.labels == nil {
			spec.labels = map[string]string{}
		}
		spec.labels[name] = value
	}

	img, err := spec.build()
	if err != nil {
		return err
	}
	if out == "-" {
		return write(stdout, spec.tag, img)
	}
	return writeFile(out, spec.tag, img)
}

// pair splits the NAME=VALUE argument of the named flag.
func pair(flag, arg string) (name, value string, err error) {
	name, value, ok := strings.Cut(arg, "=")
	if !ok || name == "" || value == "" {
		return "", "", fmt.Errorf("%s %q: want NAME=VALUE", flag, arg)
	}
	return name, value, nil
}

// list is a flag that may be given more than once.
type list []string

// String implements flag.Value.
func (l *list) String() string { return strings.Join(*l, ",") }

// Set implements flag.Value.
func (l *list) Set(s string) error {
	*l = append(*l, s)
	return nil
}
