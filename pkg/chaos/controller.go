package chaos

import (
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"strings"
	"time"

	"github.com/flatline-chaos/flatline/pkg/cluster"
	"github.com/flatline-chaos/flatline/pkg/observe"
	"github.com/flatline-chaos/flatline/pkg/timeline"
)

const (
	controllerManager  = cluster.ControllerManager
	manifests          = cluster.Manifests
	controllerManifest = manifests + controllerManager + ".yaml"
)

// controllerFunctions has container and process, which print the id of the controller
// manager's container and its process.
//
//go:embed controller.sh
var controllerFunctions string

//go:embed manifest-out.sh
var manifestOut string

//go:embed kill-controller.sh
var killController string

// stopped records that the controller manager's container ended.
func (t *Target) stopped(at time.Time, id string) {
	t.Emit(timeline.Event{Stamp: at, Source: "run", Type: timeline.TypeStopped, Object: controllerManager,
		Detail: map[string]string{"id": id}})
}

// controllerStopped moves the static manifest of kube-controller-manager out of the
// kubelet's sight: nobody approves, signs, marks nodes or evicts. With Kubelet
// "stopped" the target cannot heal when it is back.
type controllerStopped struct{}

// restoreManifest has the kubelet see all of the manifest at once: it passes over
// names that begin with a dot (kubelet/config/file_linux.go). A plain mv would copy,
// since the run's folder may be on another file system.
const restoreManifest = "[ -e manifest ] || exit 0\n" +
	"! cmp -s manifest " + controllerManifest + " || exit 0\n" +
	"cp -p manifest " + manifests + ".flatline && mv " + manifests + ".flatline " + controllerManifest + " && date +%s.%N"

// Undo moves the manifest back. What waits is not deleted: without a controller
// nobody serves it before the target is repaired.
func (f *controllerStopped) Undo(t *Target) []Step {
	return append(withoutRequests(t), Step{Desc: "moving the manifest of " + controllerManager + " back", On: t.ControlPlane.Name,
		Script: inStage(t.RunID, restoreManifest)})
}

// Release moves the manifest back with the targets left alone.
func (f *controllerStopped) Release(ctx context.Context, t *Target) (time.Time, error) {
	return t.release(ctx, restoreManifest)
}

// Inject moves the manifest, gives the target its certificate, and waits until the
// container is gone: the kubelet looks every second, and lists every 20 s.
func (f *controllerStopped) Inject(ctx context.Context, t *Target) error {
	out, err := t.ControlPlane.change(ctx, nil, inStage(t.RunID, given(controllerFunctions+manifestOut, controllerManifest)))
	if err != nil {
		return fmt.Errorf("moving the manifest of %s: %w", controllerManager, err)
	}
	stamp, id, _ := strings.Cut(strings.TrimSpace(out), " ")
	at, err := observe.ParseEpoch(stamp)
	if err != nil {
		return fmt.Errorf("moving the manifest of %s: %w", controllerManager, err)
	}
	t.injected(at, "the manifest of "+controllerManager+" is moved out")
	out, err = t.ControlPlane.script(ctx, nil, controllerFunctions+`set -o pipefail
for i in $(seq 1200); do id=$(container) && [ -z "$id" ] && { date +%s.%N; exit 0; }; sleep 0.1; done
echo 'the container does not end' >&2; exit 1`)
	if err != nil {
		return fmt.Errorf("waiting for the container of %s to end: %w", controllerManager, err)
	}
	gone, err := observe.ParseEpoch(strings.TrimSpace(out))
	if err != nil {
		return fmt.Errorf("waiting for the container of %s to end: %w", controllerManager, err)
	}
	t.stopped(gone, id)
	return t.installMinted(ctx)
}

// Witness sees it in place while the manifest is out, and biting while there is no
// container.
func (f *controllerStopped) Witness(ctx context.Context, t *Target) (Evidence, error) {
	out, err := t.ControlPlane.script(ctx, nil, given(controllerFunctions+`set -o pipefail
[ -e "$1" ] && echo there || echo out
container`, controllerManifest))
	if err != nil {
		return Evidence{}, fmt.Errorf("looking at the manifest of %s: %w", controllerManager, err)
	}
	manifest, id, _ := strings.Cut(strings.TrimSpace(out), "\n")
	ev := Evidence{InPlace: manifest == "out", Seen: "the manifest is " + manifest + ", no container runs"}
	if id != "" {
		ev.Seen = "the manifest is " + manifest + ", container " + id + " runs"
	}
	ev.Biting = ev.InPlace && id == ""
	return ev, nil
}

// controllerFrozen stops the process of kube-controller-manager with SIGSTOP: it
// keeps its identity, and its Lease for as long as nobody else wants it.
type controllerFrozen struct{}

// thaw has nothing to do where there is no process, which pgrep says with a 1: one
// that was started since is not frozen.
const thaw = "p=$(process) || exit $(($? > 1))\nkill -CONT $p && date +%s.%N"

// Undo lets it go on.
func (f *controllerFrozen) Undo(t *Target) []Step {
	return append(withoutRequests(t), Step{Desc: "letting " + controllerManager + " go on", On: t.ControlPlane.Name,
		Script: inStage(t.RunID, controllerFunctions+thaw)})
}

// Release lets it go on with the targets left alone.
func (f *controllerFrozen) Release(ctx context.Context, t *Target) (time.Time, error) {
	return t.release(ctx, controllerFunctions+thaw)
}

// Inject freezes it.
func (f *controllerFrozen) Inject(ctx context.Context, t *Target) error {
	at, err := t.ControlPlane.when(ctx, controllerFunctions+"p=$(process) && kill -STOP $p && date +%s.%N")
	if err != nil {
		return fmt.Errorf("freezing %s: %w", controllerManager, err)
	}
	t.injected(at, controllerManager+" is frozen")
	return t.installMinted(ctx)
}

// Witness looks at the state of the process.
func (f *controllerFrozen) Witness(ctx context.Context, t *Target) (Evidence, error) {
	out, err := t.ControlPlane.script(ctx, nil, controllerFunctions+"ps -o stat= -p $(process)")
	if err != nil {
		return Evidence{}, fmt.Errorf("looking at the process of %s: %w", controllerManager, err)
	}
	state := strings.TrimSpace(out)
	frozen := strings.HasPrefix(state, "T")
	return Evidence{InPlace: frozen, Biting: frozen, Seen: "its process is in state " + state}, nil
}

// controllerKilled kills the process of kube-controller-manager once; the kubelet
// starts its container again.
type controllerKilled struct {
	id string // of the container that was killed
}

// Undo has nothing to take back: it starts again by itself.
func (f *controllerKilled) Undo(t *Target) []Step { return withoutRequests(t) }

// Inject kills it.
func (f *controllerKilled) Inject(ctx context.Context, t *Target) error {
	out, err := t.ControlPlane.change(ctx, nil, controllerFunctions+killController)
	if err != nil {
		return fmt.Errorf("killing %s: %w", controllerManager, err)
	}
	stamp, id, _ := strings.Cut(strings.TrimSpace(out), " ")
	at, err := observe.ParseEpoch(stamp)
	if err != nil {
		return fmt.Errorf("killing %s: %w", controllerManager, err)
	}
	f.id = id
	t.injected(at, controllerManager+" is killed")
	t.stopped(at, id)
	return t.installMinted(ctx)
}

// Witness sees it biting when another container runs, or none.
func (f *controllerKilled) Witness(ctx context.Context, t *Target) (Evidence, error) {
	if f.id == "" {
		return Evidence{}, nil
	}
	out, err := t.ControlPlane.script(ctx, nil, controllerFunctions+"set -o pipefail\ncontainer")
	if err != nil {
		return Evidence{}, fmt.Errorf("looking for the container of %s: %w", controllerManager, err)
	}
	id := cmp.Or(strings.TrimSpace(out), "none")
	return Evidence{InPlace: true, Biting: id != f.id, Seen: "container " + id + ", was " + f.id}, nil
}
