package chaos

import (
	"context"
	"time"

	certv1 "k8s.io/api/certificates/v1"
)

// rotation breaks nothing: the target's certificate is near its end, and the
// kubelet must get the next one in time. It is the control arm of every fault that
// keeps it from doing so.
type rotation struct {
	injectedAt time.Time
}

// Undo has nothing to take back.
func (f *rotation) Undo(*Target) []Step { return nil }

// Inject gives the target a short-lived certificate, or lets its own run on.
func (f *rotation) Inject(ctx context.Context, t *Target) error {
	at, err := t.ControlPlane.now(ctx)
	if err != nil {
		return err
	}
	f.injectedAt = at
	t.injected(at, "nothing but a certificate that ends soon")
	return t.installMinted(ctx)
}

// Witness sees it biting when the target has asked for its next certificate.
func (f *rotation) Witness(ctx context.Context, t *Target) (Evidence, error) {
	if f.injectedAt.IsZero() {
		return Evidence{}, nil
	}
	asked, seen, err := t.everyTarget(ctx, f.injectedAt, func(certv1.CertificateSigningRequest) bool { return true })
	return Evidence{InPlace: true, Biting: asked, Seen: seen}, err
}
