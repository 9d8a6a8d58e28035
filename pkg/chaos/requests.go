package chaos

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	certv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flatline-chaos/flatline/pkg/observe"
)

// requests lists the targets' requests for client certificates.
func (t *Target) requests(ctx context.Context) ([]certv1.CertificateSigningRequest, error) {
	csrs, err := t.Client.CSRs().List(ctx,
		metav1.ListOptions{FieldSelector: "spec.signerName=" + certv1.KubeAPIServerClientKubeletSignerName})
	if err != nil {
		return nil, fmt.Errorf("listing certificate signing requests: %w", err)
	}
	return slices.DeleteFunc(csrs.Items, func(c certv1.CertificateSigningRequest) bool {
		return !slices.ContainsFunc(t.Nodes, func(n Node) bool { return c.Spec.Username == "system:node:"+n.Name })
	}), nil
}

// everyTarget says whether every target has a request, made since a time, that is
// as wanted, and what was seen of each. The list is in the order of random names.
func (t *Target) everyTarget(
	ctx context.Context, since time.Time, want func(certv1.CertificateSigningRequest) bool,
) (all bool, seen string, err error) {
	csrs, err := t.requests(ctx)
	if err != nil {
		return false, "", err
	}
	all = true
	var states []string
	for _, n := range t.Nodes {
		state, found := "no request since the injection", false
		for _, c := range csrs {
			if found || c.Spec.Username != "system:node:"+n.Name || c.CreationTimestamp.Time.Before(since.Truncate(time.Second)) {
				continue
			}
			state = fmt.Sprintf("%s is %s", c.Name, observe.CSRState(&c))
			found = want(c)
		}
		states = append(states, n.Name+": "+state)
		all = all && found
	}
	return all, strings.Join(states, "; "), nil
}

// touchRequests writes to the requests that were not served, so that controllers
// look at them at once.
const touchRequests = "names=$(" + admin +
	`get csr -o go-template='{{range .items}}{{if not .status.certificate}}{{.metadata.name}} {{end}}{{end}}') && ` +
	`{ [ -z "$names" ] || ` + admin + `annotate csr $names flatline.dev/touched="$(date +%s)" --overwrite >/dev/null; }`

// release takes a fault back by a script on the control-plane node that prints the
// time, and touches the requests if the experiment says so.
func (t *Target) release(ctx context.Context, script string) (time.Time, error) {
	if t.Spec.Release != nil && t.Spec.Release.Touch {
		script = "set -o pipefail\n" + strings.Replace(script, "date +%s.%N", "date +%s.%N\n"+touchRequests, 1)
	}
	at, err := t.ControlPlane.when(ctx, inStage(t.RunID, script))
	if err != nil {
		return time.Time{}, fmt.Errorf("taking the fault back: %w", err)
	}
	return at, nil
}

// withoutRequests stops the targets' kubelets and deletes what they still wait for:
// once the fault is taken back it would be served while the node is repaired, and
// kubelet and repair would both replace the certificate.
func withoutRequests(t *Target) []Step {
	var steps []Step
	for _, n := range t.Nodes {
		steps = append(steps, Step{Desc: "stopping the kubelet", On: n.Name, Script: inStage(t.RunID, "systemctl stop kubelet")})
	}
	const waits = "{{range .items}}" +
		`{{if and (eq .spec.username "system:node:%s") (not .status.certificate)}}{{.metadata.name}} {{end}}{{end}}`
	for _, n := range t.Nodes {
		script := fmt.Sprintf(`set -o pipefail
%[1]sget csr -o go-template='%[2]s' | xargs -r %[1]sdelete csr --ignore-not-found >/dev/null`, admin, fmt.Sprintf(waits, n.Name))
		steps = append(steps, Step{Desc: "deleting the unanswered requests of " + n.Name, On: t.ControlPlane.Name,
			Script: inStage(t.RunID, script)})
	}
	return steps
}
