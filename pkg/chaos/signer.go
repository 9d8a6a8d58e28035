package chaos

import (
	"context"
	_ "embed"
	"fmt"
	"slices"
	"time"

	certv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flatline-chaos/flatline/pkg/observe"
)

// signerRole lets the controller manager's signer sign. The API server reconciles
// it when it starts, unless an annotation forbids that
// (component-helpers/auth/rbac/reconciliation).
const signerRole = "system:controller:certificate-controller"

// signerOff takes from the controller manager the right to sign kubelets' client
// certificates: requests are approved and never issued (admission plugin
// CertificateSigning). It hits every node alike, so the others must have
// certificates that outlive the run.
type signerOff struct {
	injectedAt time.Time
}

const restoreRole = "[ -e role-before ] || exit 0\n" + admin + "replace -f role-before >/dev/null || exit 1\ndate +%s.%N"

// Undo stops the target's kubelet before the right is given back, as csr-denied
// does.
func (f *signerOff) Undo(t *Target) []Step {
	return append(withoutRequests(t), Step{Desc: "giving the right to sign back", On: t.ControlPlane.Name,
		Script: inStage(t.RunID, restoreRole)})
}

// Release gives the right back alone.
func (f *signerOff) Release(ctx context.Context, t *Target) (time.Time, error) {
	return t.release(ctx, restoreRole)
}

//go:embed take-signer.sh
var takeSigner string

// Inject takes the signer's name out of every rule that allows to sign. A rule that
// would be left with no name, which means all, goes.
func (f *signerOff) Inject(ctx context.Context, t *Target) error {
	script := given(adminFunction+keepFunction+takeSigner, signerRole, certv1.KubeAPIServerClientKubeletSignerName)
	at, err := t.ControlPlane.when(ctx, inStage(t.RunID, script))
	if err != nil {
		return fmt.Errorf("taking the right to sign: %w", err)
	}
	f.injectedAt = at
	t.injected(at, "the controller manager may not sign kubelets' client certificates")
	return t.installMinted(ctx)
}

// Witness sees it biting when a request of every target is approved and has no
// certificate a while later.
func (f *signerOff) Witness(ctx context.Context, t *Target) (Evidence, error) {
	role, err := t.Client.ClusterRoles().Get(ctx, signerRole, metav1.GetOptions{})
	if err != nil {
		return Evidence{}, fmt.Errorf("reading the role of the signer: %w", err)
	}
	inPlace := true
	for _, r := range role.Rules {
		if slices.Contains(r.Verbs, "sign") && slices.Contains(r.ResourceNames, certv1.KubeAPIServerClientKubeletSignerName) {
			inPlace = false
		}
	}
	if f.injectedAt.IsZero() {
		return Evidence{InPlace: inPlace, Seen: "nobody has injected it"}, nil
	}
	bites, seen, err := t.everyTarget(ctx, f.injectedAt, func(c certv1.CertificateSigningRequest) bool {
		return observe.CSRState(&c) == "Approved" && time.Since(c.CreationTimestamp.Time) > unanswered
	})
	return Evidence{InPlace: inPlace, Biting: inPlace && bites, Seen: seen}, err
}
