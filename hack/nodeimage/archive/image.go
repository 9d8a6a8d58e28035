package main

import (
	"archive/tar"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"path"
	"runtime"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/compression"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// defaultPath lets commands such as etcd, which kubeadm names without a
// folder, be found in an image that holds nothing but one program.
const defaultPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// zstdLevel takes no longer than the fastest level and saves a twentieth.
const zstdLevel = 3

// A spec says what an image is made of.
type spec struct {
	tag        string
	layers     []string    // uncompressed tar archives, lowest first
	files      []fileToAdd // the last layer, none if empty
	entrypoint []string
	env        []string // in addition to defaultPath
	labels     map[string]string
	stopSignal string
	compress   compression.Compression
}

// A fileToAdd is copied from a path of the host to a path of the image.
type fileToAdd struct {
	host, image string
}

// build assembles the image. Layers are read when the image is written.
func (s spec) build() (v1.Image, error) {
	opts, err := layerOptions(s.compress)
	if err != nil {
		return nil, err
	}

	var layers []v1.Layer
	for _, l := range s.layers {
		layer, err := tarball.LayerFromFile(l, opts...)
		if err != nil {
			return nil, fmt.Errorf("failed to make a layer of %s: %w", l, err)
		}
		layers = append(layers, layer)
	}
	if len(s.files) > 0 {
		layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return tarFiles(s.files), nil }, opts...)
		if err != nil {
			return nil, fmt.Errorf("failed to make a layer of the added files: %w", err)
		}
		layers = append(layers, layer)
	}

	img, err := mutate.AppendLayers(empty.Image, layers...)
	if err != nil {
		return nil, fmt.Errorf("failed to append layers: %w", err)
	}
	cfg, err := img.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("failed to read the image configuration: %w", err)
	}
	cfg = cfg.DeepCopy()
	cfg.OS, cfg.Architecture = "linux", runtime.GOARCH
	cfg.Created = v1.Time{Time: time.Now().UTC().Truncate(time.Second)}
	cfg.Config = v1.Config{
		Entrypoint: s.entrypoint,
		Env:        append([]string{defaultPath}, s.env...),
		Labels:     s.labels,
		StopSignal: s.stopSignal,
	}
	img, err = mutate.ConfigFile(img, cfg)
	if err != nil {
		return nil, fmt.Errorf("failed to set the image configuration: %w", err)
	}
	return img, nil
}

// layerOptions returns how to make layers with the given compression.
func layerOptions(c compression.Compression) ([]tarball.LayerOption, error) {
	opts := []tarball.LayerOption{tarball.WithCompression(c)}
	switch c {
	case compression.None:
		return opts, nil
	case compression.GZip:
		opts = append(opts, tarball.WithCompressionLevel(gzip.DefaultCompression))
	case compression.ZStd:
		opts = append(opts, tarball.WithCompressionLevel(zstdLevel), tarball.WithMediaType(types.OCILayerZStd))
	default:
		return nil, fmt.Errorf("unknown compression %q: want gzip, zstd or none", c)
	}
	// A layer is read once for its digest and once to be written: keep the
	// compressed bytes rather than compress twice.
	return append(opts, tarball.WithCompressedCaching), nil
}

// tarFiles streams a tar archive of the files. It names every parent folder as
// well, so that their mode does not depend on who unpacks the layer, and gives
// no time or owner of the host away: equal files make equal layers.
func tarFiles(files []fileToAdd) io.ReadCloser {
	r, w := io.Pipe()
	go func() {
		tw := tar.NewWriter(w)
		err := addFiles(tw, files)
		if err == nil {
			err = tw.Close()
		}
		w.CloseWithError(err) // a nil error is io.EOF for the reader
	}()
	return r
}

func addFiles(tw *tar.Writer, files []fileToAdd) error {
	seen := map[string]bool{}
	for _, f := range files {
		dst := strings.TrimPrefix(path.Clean("/"+f.image), "/")
		for i, c := range dst {
			if dir := dst[:i]; c == '/' && !seen[dir] {
				seen[dir] = true
				if err := tw.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o755}); err != nil {
					return err
				}
			}
		}
		if err := addFile(tw, f.host, dst); err != nil {
			return fmt.Errorf("failed to add %s: %w", f.host, err)
		}
	}
	return nil
}

func addFile(tw *tar.Writer, src, dst string) error {
	f, err := os.Open(src)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("not a regular file but %s", info.Mode().Type())
	}
	mode := int64(0o644)
	if info.Mode()&0o111 != 0 {
		mode = 0o755
	}
	if err := tw.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: dst, Mode: mode, Size: info.Size()}); err != nil {
		return err
	}
	_, err = io.Copy(tw, f)
	return err
}

// write writes the image as a docker archive.
func write(w io.Writer, tag string, img v1.Image) error {
	ref, err := name.NewTag(tag)
	if err != nil {
		return fmt.Errorf("failed to parse the tag: %w", err)
	}
	if err := tarball.Write(ref, img, w); err != nil {
		return fmt.Errorf("failed to write image %s: %w", tag, err)
	}
	return nil
}

// writeFile is write to a file that appears only when it is complete.
func writeFile(dst, tag string, img v1.Image) (err error) {
	tmp := dst + ".tmp"
	f, err := os.Create(tmp)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(tmp)
		}
	}()
	if err := write(f, tag, img); err != nil {
		f.Close()
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(tmp, dst)
}
