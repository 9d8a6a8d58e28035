package cluster

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/kind/pkg/apis/config/defaults"
)

// ErrNoImage says that no node image is present and none can be pulled: one has to be built.
var ErrNoImage = errors.New("no node image is present and none can be pulled; make node-image builds one, NODE_IMAGE names another")

// Choice is what ChooseImage may choose from.
type Choice struct {
	Override     string        // what the user asked for; nothing else is tried then
	Built        string        // tag that our own build recipe gives; "" takes the highest version among flatline/node:v*
	Default      string        // image for where a registry is reachable; "" takes kind's own
	PullDeadline time.Duration // how long the registry may take to answer; 0 means 2 min
}

// Image is a chosen node image and the reason for the choice.
type Image struct {
	Ref    string
	Origin string // "override", "built" or "default"; with " (pulled)" if it had to be
}

// ChooseImage returns the first node image that applies: the override, our own build,
// the default. It pulls what is missing. The error is ErrNoImage if there is no override
// and nothing else is to be had.
func ChooseImage(ctx context.Context, c Choice) (Image, error) {
	deadline := cmp.Or(c.PullDeadline, 2*time.Minute)
	if c.Override != "" {
		return obtain(ctx, c.Override, "override", deadline)
	}

	built := c.Built
	if built == "" {
		var err error
		if built, err = highestBuilt(ctx); err != nil {
			return Image{}, err
		}
	}
	if built != "" {
		if ok, err := present(ctx, built); ok || err != nil {
			return Image{Ref: built, Origin: "built"}, err
		}
	}

	image, err := obtain(ctx, cmp.Or(c.Default, defaults.Image), "default", deadline)
	if failed := (*pullError)(nil); errors.As(err, &failed) && ctx.Err() == nil {
		return Image{}, fmt.Errorf("%w: %w", ErrNoImage, err)
	}
	return image, err
}

// obtain returns the image if it is present or can be pulled.
func obtain(ctx context.Context, ref, origin string, deadline time.Duration) (Image, error) {
	if ok, err := present(ctx, ref); ok || err != nil {
		return Image{Ref: ref, Origin: origin}, err
	}
	if err := pull(ctx, ref, deadline); err != nil {
		return Image{}, &pullError{ref, err}
	}
	return Image{Ref: ref, Origin: origin + " (pulled)"}, nil
}

// pullError tells an image that cannot be had from an engine that cannot be asked.
type pullError struct {
	ref string
	err error
}

func (e *pullError) Error() string {
	return fmt.Sprintf("node image %s is not present, and pulling it failed: %v", e.ref, e.err)
}

func (e *pullError) Unwrap() error { return e.err }

// present tells whether the engine has the image.
func present(ctx context.Context, ref string) (bool, error) {
	_, err := docker(ctx, nil, "image", "inspect", "--format", "{{.Id}}", ref)
	if err != nil && isGone(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("looking for image %s: %w", ref, err)
	}
	return true, nil
}

// isGone tells whether the engine says that what was asked for does not exist.
func isGone(err error) bool {
	return strings.Contains(strings.ToLower(err.Error()), "no such image") // not "no such host"
}

// highestBuilt returns the flatline/node image of the highest Kubernetes version, of several
// the newest; "" if there is none.
func highestBuilt(ctx context.Context) (string, error) {
	out, err := docker(ctx, nil, "image", "ls", "--format", "{{.Tag}}", "flatline/node")
	if err != nil {
		return "", fmt.Errorf("looking for built images: %w", err)
	}
	var highest *version.Version
	var tag string
	for t := range strings.FieldsSeq(out) { // newest first
		v, err := version.ParseGeneric(t) // what follows the three numbers tells recipes apart
		if err == nil && strings.HasPrefix(t, "v") && (highest == nil || highest.LessThan(v)) {
			highest, tag = v, "flatline/node:"+t
		}
	}
	return tag, nil
}

// pull pulls an image. Where no registry can be reached the engine may try for minutes;
// the first line it writes says that it has got through, and from then on it may
// take its time.
func pull(ctx context.Context, ref string, silence time.Duration) error {
	const longest = 30 * time.Minute
	ctx, cancelAll := context.WithTimeout(ctx, longest)
	defer cancelAll()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timer := time.AfterFunc(silence, func() {
		cancel(fmt.Errorf("no answer from the registry within %s", silence))
	})
	defer timer.Stop()
	return run(ctx, nil, writerFunc(func([]byte) { timer.Stop() }), "pull", ref)
}

type writerFunc func([]byte)

func (f writerFunc) Write(p []byte) (int, error) { f(p); return len(p), nil }

// The labels of a run's image. kind cannot label containers, but a container has the
// labels of its image, from the instant it exists.
const (
	labelCluster = "dev.flatline.cluster"
	labelRun     = "dev.flatline.run"
	labelVersion = "dev.flatline.kubernetes" // Kubernetes version of the node image
	labelFlags   = "dev.flatline.flags"      // Spec.Flags as JSON
	labelImage   = "dev.flatline.image"      // Spec.Image

	runImages = "flatline/run" // repository of the images of runs, tagged with the cluster's name
)

// makeRunImage derives the image of one run from its node image: the same, with our
// labels and the audit policy. It needs neither a registry nor a builder.
//
// A killed client does not stop the engine, which would then finish a container or an
// image that nobody removes. So the single steps are not cancelled: each is short.
func makeRunImage(ctx context.Context, s Spec, flags string) (err error) {
	step := context.WithoutCancel(ctx)
	id, err := docker(step, nil, "create", "--pull", "never",
		"--label", labelCluster+"="+s.Name,
		"--label", labelRun+"="+s.RunID,
		"--label", labelFlags+"="+flags,
		"--label", labelImage+"="+s.Image,
		s.Image)
	if err != nil {
		return err
	}
	defer func() {
		if _, e := docker(step, nil, "rm", "--force", "--volumes", id); e != nil {
			err = errors.Join(err, e)
		}
	}()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}

	policy, err := archive(strings.TrimPrefix(auditPolicyFile, "/"), auditPolicy)
	if err != nil {
		return err
	}
	if _, err := docker(step, policy, "cp", "-", id+":/"); err != nil {
		return err
	}
	packed, err := docker(step, nil, "cp", id+":/kind/version", "-")
	if err != nil {
		return fmt.Errorf("%s is not a node image: %w", s.Image, err)
	}
	kubernetes, err := unpack(packed)
	if err != nil {
		return fmt.Errorf("reading /kind/version of %s: %w", s.Image, err)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}

	_, err = docker(step, nil, "commit", "--change", "LABEL "+labelVersion+"="+kubernetes, id, runImages+":"+s.Name)
	return err
}

// archive returns a tar stream of one file and the folder it is in.
func archive(name string, content []byte) (io.Reader, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	folder := name[:strings.LastIndexByte(name, '/')+1]
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: folder, Mode: 0o755}); err != nil {
		return nil, err
	}
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(content))}); err != nil {
		return nil, err
	}
	if _, err := w.Write(content); err != nil {
		return nil, err
	}
	return &b, w.Close()
}

// unpack returns the version in a tar stream of the file /kind/version.
func unpack(packed string) (string, error) {
	r := tar.NewReader(strings.NewReader(packed))
	if _, err := r.Next(); err != nil {
		return "", err
	}
	content, err := io.ReadAll(io.LimitReader(r, 256))
	if err != nil {
		return "", err
	}
	v, err := version.ParseSemantic(strings.TrimSpace(string(content)))
	if err != nil {
		return "", err
	}
	return "v" + v.String(), nil
}

// removeRunImage removes the image of a run. No image is fine.
func removeRunImage(ctx context.Context, name string) error {
	_, err := docker(ctx, nil, "image", "rm", "--no-prune", runImages+":"+name)
	if err != nil && !isGone(err) {
		return err
	}
	return nil
}

// leftImages returns the clusters that have an image, sorted.
func leftImages(ctx context.Context) ([]string, error) {
	out, err := docker(ctx, nil, "image", "ls", "--filter", "label="+labelCluster, "--format", "{{.Tag}}", runImages)
	return slices.Sorted(slices.Values(strings.Fields(out))), err
}
