package cluster

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
	ID     string // of its content, "sha256:..."; two images of one Ref may differ
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
		if id, err := present(ctx, built); id != "" || err != nil {
			return Image{Ref: built, Origin: "built", ID: id}, err
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
	if id, err := present(ctx, ref); id != "" || err != nil {
		return Image{Ref: ref, Origin: origin, ID: id}, err
	}
	if err := pull(ctx, ref, deadline); err != nil {
		return Image{}, &pullError{ref, err}
	}
	id, err := present(ctx, ref)
	return Image{Ref: ref, Origin: origin + " (pulled)", ID: id}, err
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

// present returns the id of an image's content, "" if the engine does not have it.
func present(ctx context.Context, ref string) (string, error) {
	id, err := docker(ctx, nil, "image", "inspect", "--format", "{{.Id}}", ref)
	if err != nil && isGone(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("looking for image %s: %w", ref, err)
	}
	return id, nil
}

// isGone tells whether the engine says that what was asked for does not exist.
func isGone(err error) bool {
	return strings.Contains(strings.ToLower(err.Error()), "no such image") // not "no such host"
}

// highestBuilt returns the flatline/node image of the highest Kubernetes version that a recipe
// made, of several the newest; "" if there is none. A name alone is anybody's to give.
func highestBuilt(ctx context.Context) (string, error) {
	out, err := docker(ctx, nil, "image", "ls", "--filter", "label="+labelRecipe, "--format", "{{.Tag}}", "flatline/node")
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
	labelImageID = "dev.flatline.image-id"   // of its content
	labelOwner   = "dev.flatline.owner"      // Spec.Owner
	labelCache   = "dev.flatline.cache"      // Spec.Cache
	labelFor     = "dev.flatline.for"        // Spec.For

	labelWatch  = "dev.flatline.watch"  // of a container that watches over a node
	labelRecipe = "dev.flatline.recipe" // of a node image that hack/nodeimage made

	runImages = "flatline/run" // repository of the images of runs, tagged with the cluster's name
)

// makeRunImage derives the image of one run from its node image: the same, with our
// labels and the audit policy. It needs neither a registry nor a builder.
//
// A killed client does not stop the engine, which would then finish a container or an
// image that nobody removes. So the single steps are not cancelled: each is short.
func makeRunImage(ctx context.Context, s Spec, flags string) (err error) {
	step := context.WithoutCancel(ctx)
	content, err := present(step, s.Image)
	if err == nil && content == "" {
		err = fmt.Errorf("node image %s is not present", s.Image)
	}
	if err != nil {
		return err
	}
	args := []string{"create", "--pull", "never", "--name", s.Name + seed}
	for _, l := range []struct{ name, value string }{
		{labelCluster, s.Name}, {labelRun, s.RunID}, {labelFlags, flags}, {labelImage, s.Image}, {labelImageID, content},
		{labelOwner, s.Owner}, {labelCache, s.Cache}, {labelFor, s.For},
	} {
		args = append(args, "--label", l.name+"="+l.value)
	}
	id, err := docker(step, nil, append(args, s.Image)...)
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

// seed ends the name of the container that the image of a run is made from.
const seed = "-image"

// runImage is the image of a run, by its labels.
type runImage struct {
	cluster string
	labels  map[string]string
	made    time.Time
}

// findRunImages returns the images of runs.
func findRunImages(ctx context.Context) ([]runImage, error) {
	out, err := docker(ctx, nil, "image", "ls", "--filter", "label="+labelCluster, "--format", "{{json .Tag}}", runImages)
	if err != nil {
		return nil, err
	}
	var images []runImage
	for line := range strings.Lines(out) {
		var tag string
		if err := json.Unmarshal([]byte(line), &tag); err != nil {
			return nil, fmt.Errorf("docker image ls: unexpected line %q", line)
		}
		if !names.MatchString(tag) {
			continue
		}
		text, err := docker(ctx, nil, "image", "inspect", "--format", "{{json .}}", runImages+":"+tag)
		if err != nil && isGone(err) {
			continue
		}
		var image struct {
			Created time.Time
			Config  struct{ Labels map[string]string }
		}
		if err == nil {
			err = json.Unmarshal([]byte(text), &image)
		}
		if err != nil {
			return nil, fmt.Errorf("looking at the image of cluster %s: %w", tag, err)
		}
		if image.Config.Labels[labelCluster] == tag {
			images = append(images, runImage{tag, image.Config.Labels, image.Created})
		}
	}
	return images, nil
}
