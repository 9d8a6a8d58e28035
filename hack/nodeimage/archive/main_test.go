package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/compression"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

func TestRun(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "program")
	if err := os.WriteFile(program, []byte("hello"), 0o755); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(dir, "out.tar")
	err := run([]string{
		"-o", out, "-tag", "flatline/test:1", "-add", program + "=/usr/local/bin/hello",
		"-entrypoint", "hello", "-entrypoint", "world", "-env", "A=b", "-label", "c=d",
		"-stop-signal", "SIGRTMIN+3",
	}, io.Discard, io.Discard)
	if err != nil {
		t.Fatal(err)
	}

	tag, err := name.NewTag("flatline/test:1")
	if err != nil {
		t.Fatal(err)
	}
	img, err := tarball.ImageFromPath(out, &tag)
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(cfg.Config.Entrypoint, " "); got != "hello world" {
		t.Errorf("entrypoint is %q", got)
	}
	if got := strings.Join(cfg.Config.Env, " "); got != defaultPath+" A=b" {
		t.Errorf("environment is %q", got)
	}
	if cfg.Config.Labels["c"] != "d" || cfg.Config.StopSignal != "SIGRTMIN+3" {
		t.Errorf("labels are %v, the stop signal is %s", cfg.Config.Labels, cfg.Config.StopSignal)
	}
	files := mutate.Extract(img)
	defer files.Close()
	var content bytes.Buffer
	if _, err := content.ReadFrom(files); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"usr/local/bin/", "usr/local/bin/hello", "hello"} {
		if !strings.Contains(content.String(), want) {
			t.Errorf("the image does not contain %q", want)
		}
	}
}

// Equal files must give an equal layer, or images that share one store it twice.
func TestLayerIsReproducible(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	var first string
	for i := range 2 {
		if err := os.WriteFile(file, []byte("same"), 0o644); err != nil {
			t.Fatal(err)
		}
		s := spec{files: []fileToAdd{{host: file, image: "etc/file"}}, compress: compression.ZStd}
		img, err := s.build()
		if err != nil {
			t.Fatal(err)
		}
		layers, err := img.Layers()
		if err != nil {
			t.Fatal(err)
		}
		digest, err := layers[0].Digest()
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			first = digest.String()
		} else if digest.String() != first {
			t.Errorf("digest is %s, was %s", digest, first)
		}
	}
}

func TestRunRejects(t *testing.T) {
	for _, args := range [][]string{
		{},
		{"-tag", "a:b", "rest"},
		{"-tag", "a:b", "-add", "no-destination"},
		{"-tag", "a:b", "-label", "=value"},
		{"-tag", "A B"},
		{"-tag", "a:b", "-compress", "best"},
		{"-tag", "a:b", "-add", "/no/such/file=/file"},
	} {
		if err := run(args, io.Discard, io.Discard); err == nil {
			t.Errorf("run(%q) succeeded", args)
		}
	}
}
