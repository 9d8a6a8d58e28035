package chaos

import (
	"context"
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"time"

	certv1 "k8s.io/api/certificates/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/flatline-chaos/flatline/pkg/observe"
	"github.com/flatline-chaos/flatline/pkg/timeline"
)

// rotationBinding lets the controller approve the requests with which kubelets
// rotate their client certificates (kubeadm
// phases/bootstraptoken/node/tlsbootstrap.go). Nothing reconciles it.
const (
	rotationBinding = "kubeadm:node-autoapprove-certificate-rotation"
	rotationRole    = "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient"
	nodesGroup      = "system:nodes"
)

// admin is kubectl inside the control-plane node.
const admin = "kubectl --kubeconfig /etc/kubernetes/admin.conf --request-timeout=60s "

// adminFunction has the same under a name, for scripts of which it is the beginning.
const adminFunction = "admin() { " + admin + "\"$@\"; }\n"

// keepFunction has keep, which keeps a copy of an object. It needs adminFunction.
//
//go:embed keep.sh
var keepFunction string

// csrDenied takes the target's right to have its rotation requests approved: the
// group of all nodes in the binding is replaced by the control nodes by name. The
// controller checks the right of the requesting user
// (controller/certificates/approver/sarapprove.go), so the control nodes go on
// rotating and a runner that dies does not take the whole cluster with it.
//
// With Everyone the binding is deleted, as it would be by mistake. With refuse each
// request of the target is denied besides: without the first the approver, which
// answers in milliseconds, would be faster, and an approved request cannot be
// denied (apis/certificates/validation).
type csrDenied struct {
	refuse     bool
	injectedAt time.Time
}

// Undo stops the target's kubelet before anything else: with the binding back, a
// request that still waits would be approved while the node is repaired, and
// kubelet and repair would both replace the certificate. For the same reason the
// waiting requests go before the binding comes back.
func (f *csrDenied) Undo(t *Target) []Step {
	return append(withoutRequests(t), Step{Desc: "restoring the binding that approves rotation", On: t.ControlPlane.Name,
		Script: inStage(t.RunID, restoreBinding)})
}

// restoreBinding puts the binding back as it was, and says when.
const restoreBinding = "[ -e binding-before ] || exit 0\n" +
	admin + "replace -f binding-before >/dev/null 2>&1 || " +
	admin + "create -f binding-before >/dev/null || exit 1\n" +
	"date +%s.%N"

// Release restores the binding alone: whether the node heals is up to it.
func (f *csrDenied) Release(ctx context.Context, t *Target) (time.Time, error) {
	return t.release(ctx, restoreBinding)
}

// Attend denies each request of the target.
func (f *csrDenied) Attend(ctx context.Context, t *Target) {
	if !f.refuse {
		return
	}
	_ = wait.PollUntilContextCancel(ctx, 200*time.Millisecond, false, func(ctx context.Context) (bool, error) {
		if err := f.denyAll(ctx, t); err != nil && ctx.Err() == nil {
			t.Emit(timeline.Event{Source: "run", Type: timeline.TypeWitnessFailed, Detail: map[string]string{"why": err.Error()}})
		}
		return false, nil
	})
}

func (f *csrDenied) denyAll(ctx context.Context, t *Target) error {
	csrs, err := t.requests(ctx)
	if err != nil {
		return err
	}
	for _, c := range csrs {
		if len(c.Status.Conditions) > 0 {
			continue
		}
		c.Status.Conditions = append(c.Status.Conditions, certv1.CertificateSigningRequestCondition{Type: certv1.CertificateDenied,
			Status: "True", Reason: "Experiment", Message: "denied by an experiment of flatline"})
		if err := t.Client.Decide(ctx, &c); err != nil && !apierrors.IsConflict(err) {
			return fmt.Errorf("denying CSR %s: %w", c.Name, err)
		}
	}
	return nil
}

// inPlace says whether the binding leaves the target out, or is gone if that is
// the fault. A binding that is not the one that kubeadm made is an error.
func (f *csrDenied) inPlace(ctx context.Context, t *Target) (bool, error) {
	b, err := t.Client.ClusterRoleBindings().Get(ctx, rotationBinding, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err) && t.Spec.Everyone:
		return true, nil
	case err != nil:
		return false, fmt.Errorf("reading the binding that approves rotation: %w", err)
	case b.RoleRef.Name != rotationRole:
		return false, fmt.Errorf("ClusterRoleBinding %s is for the role %s and not for %s", rotationBinding, b.RoleRef.Name, rotationRole)
	}
	return !bindsAllNodes(b), nil
}

func bindsAllNodes(b *rbacv1.ClusterRoleBinding) bool {
	return slices.ContainsFunc(b.Subjects, func(s rbacv1.Subject) bool { return s.Kind == rbacv1.GroupKind && s.Name == nodesGroup })
}

// Inject restricts the binding, then, where the experiment mints a certificate,
// puts it in the place of the target's and starts the kubelet with it.
func (f *csrDenied) Inject(ctx context.Context, t *Target) error {
	at, err := f.restrict(ctx, t)
	if err != nil {
		return err
	}
	f.injectedAt = at
	what := "only control nodes may have rotation requests approved"
	switch {
	case t.Spec.Everyone:
		what = "nobody may have rotation requests approved"
	case f.refuse:
		what += ", those of the target are denied"
	}
	t.injected(at, what)
	return t.installMinted(ctx)
}

//go:embed restrict.sh
var restrictScript string

// restrict replaces the binding's subjects, or deletes it, and returns the node's
// time at which that was done. The binding is kept in the run's folder first.
func (f *csrDenied) restrict(ctx context.Context, t *Target) (time.Time, error) {
	var users []string
	for _, n := range t.ControlNodes {
		users = append(users, fmt.Sprintf(`{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"system:node:%s"}`, n.Name))
	}
	change := []string{"patch", "clusterrolebinding", rotationBinding, "--type=merge", "-p", `{"subjects":[` + strings.Join(users, ",") + "]}"}
	if t.Spec.Everyone {
		change = []string{"delete", "clusterrolebinding", rotationBinding}
	}
	script := given(adminFunction+keepFunction+restrictScript, append([]string{rotationBinding}, change...)...)
	out, err := t.ControlPlane.change(ctx, nil, inStage(t.RunID, script))
	if err != nil {
		return time.Time{}, fmt.Errorf("restricting the binding that approves rotation: %w", err)
	}
	at, err := observe.ParseEpoch(out)
	if err != nil {
		return time.Time{}, fmt.Errorf("restricting the binding that approves rotation: %w", err)
	}
	return at, nil
}

// unanswered is how long a request must have waited to count as unanswered: the
// controller approves one in milliseconds, and its first retries come after 0.2,
// 0.6 and 1.4 s (controller/certificates/certificate_controller.go).
const unanswered = 2 * time.Second

// Witness sees the fault in place while the binding leaves the target out, and
// biting when a request that the target made since waits without a condition, or
// was denied if that is the fault.
func (f *csrDenied) Witness(ctx context.Context, t *Target) (Evidence, error) {
	inPlace, err := f.inPlace(ctx, t)
	if err != nil {
		return Evidence{}, err
	}
	want := func(c certv1.CertificateSigningRequest) bool {
		return observe.CSRState(&c) == "Pending" && time.Since(c.CreationTimestamp.Time) > unanswered
	}
	if f.refuse {
		want = func(c certv1.CertificateSigningRequest) bool { return observe.CSRState(&c) == "Denied" }
	}
	bites, seen, err := t.everyTarget(ctx, f.injectedAt, want)
	if err != nil {
		return Evidence{}, err
	}
	return Evidence{InPlace: inPlace, Biting: inPlace && bites, Seen: seen}, nil
}
